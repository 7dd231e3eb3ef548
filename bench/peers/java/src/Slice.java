import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.LongStream;

/** Threads that take and give back locks for a while, each one of its own. */
final class Slice {
    /** The results of one thread. */
    private record Times(LongStream.Builder acquireNs, LongStream.Builder releaseNs, long failed) {}

    private final Locks locks;
    private final String prefix = "slice-" + UUID.randomUUID() + "-";
    private final ExecutorService threads = Executors.newCachedThreadPool();

    Slice(Locks locks) {
        this.locks = locks;
    }

    Map<String, Object> run(int tasks, long ms, long mostS) throws Exception {
        long start = System.nanoTime();
        long end = start + TimeUnit.MILLISECONDS.toNanos(ms);
        List<Future<Times>> running = new ArrayList<>();
        for (int n = 0; n < tasks; n++) {
            String name = prefix + n;
            running.add(threads.submit(() -> task(name, end)));
        }
        Collection<Times> all = new ArrayList<>();
        long failed = 0;
        for (Future<Times> task : running) {
            try {
                // A thread that hangs in a call is left behind.
                long left = end + TimeUnit.SECONDS.toNanos(mostS) - System.nanoTime();
                all.add(task.get(Math.max(left, 0), TimeUnit.NANOSECONDS));
            } catch (TimeoutException why) {
                failed++;
            }
        }
        long elapsed = System.nanoTime() - start;
        failed += all.stream().mapToLong(Times::failed).sum();
        return Map.of(
                "acquire_ns", together(all, Times::acquireNs),
                "release_ns", together(all, Times::releaseNs),
                "failed", failed,
                "elapsed_ns", elapsed);
    }

    private static long[] together(Collection<Times> all, Function<Times, LongStream.Builder> times) {
        return all.stream().map(times).flatMapToLong(LongStream.Builder::build).toArray();
    }

    private Times task(String name, long end) {
        LongStream.Builder acquireNs = LongStream.builder();
        LongStream.Builder releaseNs = LongStream.builder();
        long failed = 0;
        while (System.nanoTime() < end) {
            try {
                long asked = System.nanoTime();
                Locks.Mutex lock = locks.of().apply(name);
                boolean isHeld = lock.tryAcquire().call();
                long held = System.nanoTime();
                if (!isHeld) {
                    failed++;
                    continue;
                }
                acquireNs.add(held - asked);
                lock.release().run();
                releaseNs.add(System.nanoTime() - held);
            } catch (Exception why) {
                failed++;
            }
        }
        return new Times(acquireNs, releaseNs, failed);
    }
}
