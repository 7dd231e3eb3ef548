package palisade.locks;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.CommandArgs;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A program of a pool: it does open jobs, each under a lock of its own, until none is open. Each job has a row in a table behind a
 * gate: {@code TOKEN begun} and {@code TOKEN done}.
 * <p>
 * It does what a paused program does: after its work it writes without another look at its lock.
 */
final class Worker {

    /** The set of jobs that are not done. */
    static final String OPEN = "open";

    /** The set of jobs of which a write was refused. */
    static final String REFUSED = "refused";

    private static final int THREADS = 4;

    private static final long WORK_MS = 20;

    private static final Duration TTL = Duration.ofMillis(1500);

    private static final LockOptions OPTIONS = LockOptions.defaults().ttl(TTL).waitUpTo(TTL.multipliedBy(2));

    private static final class Refused extends Exception {

        private static final long serialVersionUID = 1L;

    }

    private final Palisade locks;

    private final RedisCommands<String, String> data;

    private Worker(Palisade locks, RedisCommands<String, String> data) {
        this.locks = locks;
        this.data = data;
    }

    /** Begins the job {@code arguments[2]}, if there is one, and works at it until another program has done it. */
    public static void main(String[] arguments) throws Exception {
        RedisClient client = RedisClient.create(arguments[1]);
        ExecutorService threads = Executors.newFixedThreadPool(THREADS + 1);
        try (Palisade locks = Palisade.builder(arguments[0]).answerWithin(Duration.ofSeconds(20)).build()) {
            Worker worker = new Worker(locks, client.connect().sync());
            List<Callable<Void>> work = new ArrayList<>(Collections.nCopies(THREADS, worker::doOpenJobs));
            if (arguments.length > 2) {
                work.add(() -> worker.take(arguments[2], true));
            }
            for (Future<Void> end : threads.invokeAll(work)) {
                end.get();
            }
        } finally {
            threads.shutdown();
            client.shutdown();
        }
    }

    private Void doOpenJobs() throws InterruptedException {
        for (String job = data.srandmember(OPEN); job != null; job = data.srandmember(OPEN)) {
            take(job, false);
        }
        return null;
    }

    private Void take(String job, boolean isSlow) throws InterruptedException {
        try {
            LockHandle lock = locks.lock("lock:" + job, OPTIONS);
            doJob(lock, job, isSlow);
            lock.release();
        } catch (NotAcquiredException | NoQuorumException e) {
            // Another worker has it, or the nodes were too slow.
        } catch (Refused e) {
            data.sadd(REFUSED, job);
        }
        return null;
    }

    private void doJob(LockHandle lock, String job, boolean isSlow) throws InterruptedException, Refused {
        // Behind an agent it may rise later.
        long token = lock.token();
        // This shuts out all earlier holders.
        Object last = pass(lock, job, "LINDEX", "-1");
        if (last == null || !last.toString().endsWith("done")) {
            pass(lock, job, "RPUSH", token + " begun");
            if (isSlow) {
                data.sadd(OPEN, job);
                Server.eventually("another worker does " + job, () -> data.lindex(row(job), -1).endsWith("done"));
            } else {
                Thread.sleep(WORK_MS);
            }
            pass(lock, job, "RPUSH", token + " done");
        }
        data.srem(OPEN, job);
    }

    /** Returns the reply of a command about a job's row, which passes the job's gate. */
    private Object pass(LockHandle lock, String job, String command, String argument) throws Refused {
        CommandArgs<String, String> words = new CommandArgs<>(StringCodec.UTF8);
        List.of("gate:" + job, String.valueOf(lock.token()), "COMMAND", command, row(job), argument).forEach(words::add);
        try {
            return data.dispatch(new LettuceTransport.Name("LOCK.GATE"), new ReplyOutput(), words);
        } catch (RedisCommandExecutionException e) {
            if (!e.getMessage().startsWith("FENCED ")) {
                throw e;
            }
            if (lock.isValid()) {
                throw new IllegalStateException("two locks of one job: " + job, e);
            }
            throw new Refused();
        }
    }

    /** Returns the key of a job's row. */
    static String row(String job) {
        return "row:" + job;
    }

}
