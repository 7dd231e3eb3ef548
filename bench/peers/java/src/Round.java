import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/** Clients among which one lock goes round. Whoever gives it back queues again when the next one has it. */
final class Round {
    /** The most clients: with more waiters, several threads use each of them. */
    private static final int CLIENTS_MAX = 100;

    /** The longest wait for a thread that is to end. */
    private static final long END_MAX_MS = 5_000;

    private final CountDownLatch begin = new CountDownLatch(1);
    private final List<Locks> clients = new ArrayList<>();
    private final List<Thread> threads = new ArrayList<>();
    private final double holdMinS;
    private final double holdMaxS;
    private volatile boolean isEnded;

    private final LongStream.Builder delaysNs = LongStream.builder();
    private final long[] turns;
    private long releasedNs;
    /** Counted down once the next one has the lock. */
    private CountDownLatch taken;

    /** Starts one client more than there are waiters; the first one holds the lock until the round begins. */
    Round(Supplier<Locks> newLocks, String name, int waiters, double holdMinS, double holdMaxS) throws Exception {
        this.holdMinS = holdMinS;
        this.holdMaxS = holdMaxS;
        turns = new long[waiters + 1];
        for (int n = 0; n < Math.min(turns.length, CLIENTS_MAX); n++) {
            clients.add(newLocks.get());
        }
        for (int n = 0; n < turns.length; n++) {
            Locks.Mutex lock = clients.get(n % clients.size()).of().apply(name);
            int own = n;
            Thread thread = new Thread(() -> run(own, lock));
            threads.add(thread);
            thread.start();
            while (n == 0 && !isHeld()) {
                Thread.sleep(1);
            }
        }
    }

    void begin() {
        begin.countDown();
    }

    private synchronized boolean isHeld() {
        return turns[0] > 0;
    }

    private void run(int n, Locks.Mutex lock) {
        try {
            while (!isEnded) {
                lock.acquire().run();
                isTaken(n, System.nanoTime());
                begin.await();
                double holdS = holdMinS + ThreadLocalRandom.current().nextDouble() * (holdMaxS - holdMinS);
                LockSupport.parkNanos((long) (holdS * 1e9));
                CountDownLatch byNext = isReleased();
                lock.release().run();
                byNext.await();
            }
        } catch (Exception why) {
            if (!isEnded) {
                why.printStackTrace();
                System.exit(1);
            }
        }
    }

    private synchronized void isTaken(int n, long now) {
        if (taken != null) {
            delaysNs.add(now - releasedNs);
            taken.countDown();
        }
        turns[n]++;
    }

    private synchronized CountDownLatch isReleased() {
        taken = new CountDownLatch(1);
        releasedNs = System.nanoTime();
        return taken;
    }

    /** Returns what was measured, and ends all clients. */
    Map<String, Object> result() throws InterruptedException {
        Map<String, Object> answer;
        synchronized (this) {
            isEnded = true;
            answer = Map.of("delays_ns", delaysNs.build().toArray(), "turns", turns.clone());
        }
        threads.forEach(Thread::interrupt);
        for (Thread thread : threads) {
            thread.join(END_MAX_MS);
        }
        clients.parallelStream().forEach(locks -> locks.close().run());
        return answer;
    }
}
