package palisade.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The changes of the leader of an election, beginning with the present state. Terms grow, and within one term the sequence. While
 * the server is unreachable or guarded nothing is reported, and the last report is the best knowledge there is.
 * <p>
 * Each call returns one change, and skips those that are outdated by then.
 */
public final class Observation implements AutoCloseable {

    /** The server answers after this time even without a change. A connection without that answer is closed. */
    private static final Duration OBSERVE_FOR = Duration.ofSeconds(3);

    private static final Duration OBSERVE_UNTIL = Duration.ofSeconds(6);

    private static final long OBSERVE_AGAIN = TimeUnit.MILLISECONDS.toNanos(300);

    private final Connections connections;

    private final String name;

    private Transport.Connection connection;

    /** The state that was seen last; {@code null} before, and after a break. */
    private Leader.State known;

    /** The last report that a caller received; {@code null} before the first. */
    private Optional<Leader> reported;

    /** The report that was asked for, until a caller receives it. */
    private CompletableFuture<Optional<Leader>> pending;

    private boolean closed;

    Observation(Connections connections, String name) {
        this.connections = connections;
        this.name = name;
    }

    /**
     * Waits for the next change.
     *
     * @return the leader; empty if nobody leads
     * @throws InterruptedException if the thread is interrupted
     * @throws CancellationException if the observation was closed
     * @throws ClosedException if the {@link Palisade} was closed
     */
    public Optional<Leader> next() throws InterruptedException {
        CompletableFuture<Optional<Leader>> asked = asking();
        // An interruption leaves the question open: the next call gets its answer.
        Optional<Leader> leader = Waits.get(Waits.named(name, asked), interrupted -> {
        });
        received(asked, leader);
        return leader;
    }

    /**
     * Returns the next change. A call while one is awaited waits for the same one.
     *
     * @return the leader; empty if nobody leads. If the caller cancels this, or completes it otherwise, the next call reports the
     *         change
     * @see #next()
     */
    public CompletableFuture<Optional<Leader>> nextAsync() {
        CompletableFuture<Optional<Leader>> asked = asking();
        CompletableFuture<Optional<Leader>> own = new CompletableFuture<>();
        Waits.named(name, asked).whenCompleteAsync((leader, thrown) -> {
            // Before the caller receives it, and so can ask for the next one.
            Optional<Leader> before = received(asked, leader);
            boolean isReceived = thrown == null ? own.complete(leader) : own.completeExceptionally(Refusals.unwrap(thrown));
            if (!isReceived) {
                reportAgain(before);
            }
        }, connections.callers);
        return own;
    }

    /** Notes that a caller receives an answer, {@code null} for a failure. Returns the last report before. */
    private synchronized Optional<Leader> received(CompletableFuture<Optional<Leader>> asked, Optional<Leader> leader) {
        Optional<Leader> before = reported;
        if (pending == asked) {
            pending = null;
        }
        if (leader != null && isNews(leader)) {
            reported = leader;
        }
        return before;
    }

    /** Takes back a report that no caller received: the next call begins with the present state. */
    private synchronized void reportAgain(Optional<Leader> before) {
        reported = before;
        known = null;
    }

    private CompletableFuture<Optional<Leader>> asking() {
        CompletableFuture<Optional<Leader>> asked;
        synchronized (this) {
            if (closed) {
                return CompletableFuture.failedFuture(new CancellationException("the observation was closed"));
            }
            if (pending != null && !pending.isDone()) {
                return pending;
            }
            if (pending != null) {
                // No caller has received the last report: the server is asked for the present state, not for what follows that.
                known = null;
            }
            asked = new CompletableFuture<>();
            pending = asked;
        }
        look(asked);
        return asked;
    }

    private void look(CompletableFuture<Optional<Leader>> asked) {
        connected().thenCompose(opened -> {
            Leader.State before = known();
            return opened.send(words(before), OBSERVE_UNTIL).thenCompose(reply -> {
                // Null means for LOCK.INFO that the lock is free, for LOCK.WATCH that nothing happened.
                return reply == null && before != null ? CompletableFuture.completedFuture(before)
                        : Election.remembered(connections, Leader.toState(reply));
            });
        }).whenComplete((state, thrown) -> {
            if (thrown == null) {
                report(asked, state);
            } else {
                troubled(asked, Refusals.unwrap(thrown));
            }
        });
    }

    private synchronized Leader.State known() {
        return known;
    }

    /** Returns LOCK.INFO without a known state: LOCK.WATCH would not report a free lock. */
    private List<String> words(Leader.State before) {
        if (before == null) {
            return List.of("LOCK.INFO", name);
        }
        List<String> words = new ArrayList<>(List.of("LOCK.WATCH", name, String.valueOf(OBSERVE_FOR.toMillis())));
        if (before.token() > 0) {
            words.addAll(List.of("TOKEN", String.valueOf(before.token()), "SEQ", String.valueOf(before.sequence())));
        }
        return words;
    }

    private void report(CompletableFuture<Optional<Leader>> asked, Leader.State state) {
        boolean isNews;
        synchronized (this) {
            known = state;
            isNews = isNews(state.leader());
        }
        if (isNews) {
            asked.complete(state.leader());
        } else if (!asked.isDone()) {
            look(asked);
        }
    }

    private boolean isNews(Optional<Leader> leader) {
        if (reported == null || leader.isEmpty() || reported.isEmpty()) {
            return !leader.equals(reported);
        }
        Leader now = leader.get();
        Leader before = reported.get();
        return now.term() > before.term() || now.term() == before.term() && now.sequence() > before.sequence();
    }

    private void troubled(CompletableFuture<Optional<Leader>> asked, Throwable failure) {
        forget();
        if (connections.isClosing()) {
            asked.completeExceptionally(new ClosedException());
        } else if (Refusals.isLasting(failure)) {
            asked.completeExceptionally(failure);
        } else if (!asked.isDone()) {
            // The timers of the connections end with them, and would leave the caller without an answer.
            CompletableFuture.delayedExecutor(OBSERVE_AGAIN, TimeUnit.NANOSECONDS, connections.callers)
                    .execute(() -> look(asked));
        }
    }

    private CompletableFuture<Transport.Connection> connected() {
        synchronized (this) {
            if (closed) {
                return CompletableFuture.failedFuture(new CancellationException("the observation was closed"));
            }
            if (connection != null) {
                return CompletableFuture.completedFuture(connection);
            }
        }
        return connections.forWait().thenApply(opened -> {
            synchronized (this) {
                if (!closed) {
                    connection = opened;
                    return opened;
                }
            }
            connections.destroy(opened);
            throw new CancellationException("the observation was closed");
        });
    }

    /** Closes the connection: the next one begins with the present state. */
    private void forget() {
        Transport.Connection old;
        synchronized (this) {
            known = null;
            old = connection;
            connection = null;
        }
        if (old != null) {
            connections.destroy(old);
        }
    }

    /** Ends the observation. A call that waits for a change ends with {@link CancellationException}. */
    @Override
    public void close() {
        CompletableFuture<Optional<Leader>> waiting;
        synchronized (this) {
            closed = true;
            waiting = pending;
        }
        if (waiting != null) {
            waiting.completeExceptionally(new CancellationException("the observation was closed"));
        }
        forget();
    }

}
