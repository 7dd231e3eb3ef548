package palisade.locks;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.CommandArgs;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * A program of a pool: it takes jobs from a set, each under a lock of its own, and writes their results into a table behind a
 * gate, and into one without. It prints {@code has JOB}, {@code did JOB} and {@code fenced JOB}.
 * <p>
 * It does what a paused program does: after its work it writes without another look at its lock. The first holder of a job whose
 * name begins with {@link #SLOW} works until another worker has done the job.
 */
final class Worker {

    /** The set of jobs that are not done. */
    static final String TODO = "todo";

    /** Present once no job will be added. */
    static final String END = "end";

    static final String SLOW = "slow:";

    private static final int THREADS = 4;

    private static final LockOptions OPTIONS = LockOptions.defaults().ttl(Duration.ofMillis(1500));

    private final Palisade locks;

    private final RedisCommands<String, String> data;

    private Worker(Palisade locks, StatefulRedisConnection<String, String> data) {
        this.locks = locks;
        this.data = data.sync();
    }

    /** Works on jobs of the server {@code arguments[1]}, with locks of {@code arguments[0]}, until the end or that of stdin. */
    public static void main(String[] arguments) throws InterruptedException {
        Thread parent = new Thread(Worker::endWithParent);
        parent.setDaemon(true);
        parent.start();
        RedisClient client = RedisClient.create(arguments[1]);
        try (Palisade locks = Palisade.builder(arguments[0]).answerWithin(Duration.ofSeconds(10)).build()) {
            List<Thread> threads = Stream.generate(() -> new Thread(() -> new Worker(locks, client.connect()).work()))
                    .limit(THREADS).toList();
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        client.shutdown();
    }

    private static void endWithParent() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is said.
            }
        } catch (IOException e) {
            // That is the end too.
        }
        System.exit(1);
    }

    private void work() {
        while (data.exists(END) == 0) {
            String job = data.srandmember(TODO);
            try {
                if (job == null) {
                    Thread.sleep(5);
                } else {
                    take(job);
                }
            } catch (InterruptedException e) {
                return;
            } catch (PalisadeException e) {
                // Another one does it, as where nodes were killed.
                System.out.println("failed " + job + ' ' + e);
            }
        }
    }

    private void take(String job) throws InterruptedException {
        Optional<LockHandle> lock = locks.tryLock("lock:" + job, OPTIONS);
        if (lock.isEmpty()) {
            return;
        }
        String token = String.valueOf(lock.get().token());
        System.out.println("has " + job);
        // Reading through the gate shuts out every earlier holder.
        boolean isDone = !Long.valueOf(0).equals(pass(token, job, "LLEN"));
        if (!isDone) {
            doWork(job);
            isDone = write(token, job);
        }
        if (isDone) {
            data.srem(TODO, job);
        }
        lock.get().release();
    }

    private void doWork(String job) throws InterruptedException {
        boolean waits = job.startsWith(SLOW) && data.set("first:" + job, "", SetArgs.Builder.nx()) != null;
        while (waits && data.llen(fenced(job)) == 0) {
            Thread.sleep(5);
        }
    }

    /** Writes the result to both tables, and returns whether the gate let it pass. */
    private boolean write(String token, String job) {
        data.rpush(plain(job), token);
        boolean passed = pass(token, job, "RPUSH", token) != null;
        System.out.println((passed ? "did " : "fenced ") + job);
        return passed;
    }

    /** Returns the reply of a command about the row of a job; {@code null} where the gate refuses the token. */
    private Object pass(String token, String job, String command, String... more) {
        CommandArgs<String, String> words = new CommandArgs<>(StringCodec.UTF8);
        List.of("gate:" + job, token, "COMMAND", command, fenced(job)).forEach(words::add);
        List.of(more).forEach(words::add);
        try {
            return data.dispatch(new LettuceTransport.Name("LOCK.GATE"), new ReplyOutput(), words);
        } catch (RedisCommandExecutionException e) {
            if (e.getMessage().startsWith("FENCED ")) {
                return null;
            }
            throw e;
        }
    }

    /** Returns the row of a job in the table behind gates. */
    static String fenced(String job) {
        return "fenced:" + job;
    }

    /** Returns the row of a job in the table without gates. */
    static String plain(String job) {
        return "plain:" + job;
    }

}
