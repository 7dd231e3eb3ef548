package palisade.locks;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The connections of a {@link Palisade}: one for commands that are answered at once, and one for each command that waits. */
final class Connections {

    /** The largest number of idle connections kept for later waits. */
    private static final int IDLE_MAX = 4;

    final Transport transport;

    final Duration answerWithin;

    /** Completes the futures of callers, whose code then may block: that must not stop a connection or the timers. */
    final Executor callers;

    private final ScheduledThreadPoolExecutor timers;

    private final Deque<Transport.Connection> idle = new ArrayDeque<>();

    private final Set<Transport.Connection> waiting = new HashSet<>();

    private final CompletableFuture<Void> quiet = new CompletableFuture<>();

    private int background;

    private boolean closing;

    private volatile Boolean agent;

    Connections(Transport transport, Duration answerWithin, Executor callers) {
        this.transport = transport;
        this.answerWithin = answerWithin;
        this.callers = task -> {
            try {
                callers.execute(task);
            } catch (RejectedExecutionException ended) {
                // The program may end its executor first. Somebody may wait for this future.
                task.run();
            }
        };
        this.timers = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "palisade-timers");
            thread.setDaemon(true);
            return thread;
        });
        timers.setRemoveOnCancelPolicy(true);
    }

    synchronized boolean isClosing() {
        return closing;
    }

    /** Runs a task after this time, unless everything is closed by then. */
    Runnable after(long nanos, Runnable task) {
        try {
            var timer = timers.schedule(task, Math.max(0, nanos), TimeUnit.NANOSECONDS);
            return () -> timer.cancel(false);
        } catch (RejectedExecutionException closed) {
            return () -> {
            };
        }
    }

    CompletableFuture<Object> send(List<String> words) {
        return transport.send(words, answerWithin);
    }

    /**
     * An answer, and how it came.
     *
     * @param reply the answer
     * @param broke whether a connection broke on the way, so that the command may have been executed before
     */
    record Answer(Object reply, boolean broke) {
    }

    /**
     * Sends a repeatable command that is answered at once; again if its connection breaks, or the server is not ready yet. On
     * a slow connection that is not broken, the command is not sent twice.
     */
    CompletableFuture<Answer> ask(long limit, List<String> words) {
        CompletableFuture<Answer> answer = new CompletableFuture<>();
        askUntil(Clock.in(limit), words, false, answer);
        return answer;
    }

    private void askUntil(long until, List<String> words, boolean broke, CompletableFuture<Answer> answer) {
        long left = Math.max(until - Clock.now(), 1_000_000);
        transport.send(words, Duration.ofNanos(left)).whenComplete((reply, thrown) -> {
            if (thrown == null) {
                answer.complete(new Answer(reply, broke));
                return;
            }
            Throwable failure = Refusals.unwrap(thrown);
            long pause = Refusals.passesIn(failure);
            if (pause >= 0 && Clock.now() + pause < until) {
                after(pause, () -> askUntil(until, words, broke, answer));
            } else if (Refusals.isBroken(failure) && !broke && Clock.now() < until) {
                askUntil(until, words, true, answer);
            } else {
                answer.completeExceptionally(failure);
            }
        });
    }

    /** Returns a connection for a command that waits. {@link #giveIdle} or {@link #destroy} takes it back. */
    CompletableFuture<Transport.Connection> forWait() {
        Transport.Connection kept = popIdle();
        if (kept != null) {
            return CompletableFuture.completedFuture(kept);
        }
        return transport.connect().thenApply(opened -> {
            synchronized (this) {
                if (!closing) {
                    waiting.add(opened);
                    return opened;
                }
            }
            opened.close();
            throw new ClosedException();
        });
    }

    private synchronized Transport.Connection popIdle() {
        Transport.Connection last;
        while ((last = idle.pollLast()) != null) {
            if (last.isOpen()) {
                waiting.add(last);
                return last;
            }
            last.close();
        }
        return null;
    }

    /** Takes back a connection on which nothing waits, and keeps it for later waits. */
    synchronized void giveIdle(Transport.Connection one) {
        waiting.remove(one);
        if (one.isOpen() && idle.size() < IDLE_MAX && !closing) {
            idle.add(one);
        } else {
            one.close();
        }
    }

    synchronized void destroyIdle() {
        idle.forEach(Transport.Connection::close);
        idle.clear();
    }

    /** Closes a connection on which something may wait. */
    synchronized void destroy(Transport.Connection one) {
        waiting.remove(one);
        one.close();
    }

    /** Asks once whether the server is an agent, which reports its number of nodes. */
    CompletableFuture<Boolean> isAgent() {
        if (agent != null) {
            return CompletableFuture.completedFuture(agent);
        }
        return ask(answerWithin.toNanos(), List.of("LOCK.NODE")).thenApply(answer -> {
            agent = Replies.toFields(answer.reply()).containsKey("nodes");
            return agent;
        });
    }

    /** Makes {@link #close} wait for this work. */
    <T> CompletableFuture<T> inBackground(CompletableFuture<T> work) {
        synchronized (this) {
            background++;
        }
        work.whenComplete((result, failure) -> {
            boolean last;
            synchronized (this) {
                background--;
                last = closing && background == 0;
            }
            if (last) {
                quiet.complete(null);
            }
        });
        return work;
    }

    /** Announces the end, waits for the work in the background, and closes all connections. */
    void close() {
        boolean last;
        synchronized (this) {
            closing = true;
            last = background == 0;
        }
        if (last) {
            quiet.complete(null);
        }
        // Not in a callback: the threads of connections cannot wait for their own end.
        Waits.join(quiet);
        synchronized (this) {
            waiting.forEach(Transport.Connection::close);
            waiting.clear();
            destroyIdle();
        }
        timers.shutdownNow();
        transport.close();
    }

}
