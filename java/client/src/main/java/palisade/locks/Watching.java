package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Learns at once from a {@code palisade agent} that a lock was taken away. Failures are ignored: extensions show the state of
 * the lock.
 */
final class Watching {

    /** A lock is watched once it was held for this long: most are released before, and a watch takes connections. */
    private static final long WATCH_AFTER = TimeUnit.MILLISECONDS.toNanos(500);

    /** The agent answers after this time even without a change. */
    private static final Duration WATCH_FOR = Duration.ofMinutes(1);

    private static final long WATCH_AGAIN = TimeUnit.SECONDS.toNanos(1);

    /** The largest number of locks watched at once: a program with thousands leaves the agent's connections to others. */
    private static final int WATCHES_MAX = 32;

    private final Connections connections;

    private final AtomicInteger watches = new AtomicInteger();

    Watching(Connections connections) {
        this.connections = connections;
    }

    void watch(Held held) {
        connections.after(WATCH_AFTER, () -> begin(held));
    }

    private void begin(Held held) {
        if (held.isOver()) {
            return;
        }
        if (watches.incrementAndGet() > WATCHES_MAX) {
            watches.decrementAndGet();
            again(held);
            return;
        }
        connections.isAgent().whenComplete((isAgent, failure) -> {
            if (failure == null && isAgent) {
                connect(held);
                return;
            }
            watches.decrementAndGet();
            if (failure != null && !Refusals.isLasting(Refusals.unwrap(failure))) {
                again(held);
            }
        });
    }

    private void again(Held held) {
        connections.after(WATCH_AGAIN, () -> begin(held));
    }

    private void connect(Held held) {
        connections.forWait().whenComplete((connection, failure) -> {
            if (failure != null) {
                watches.decrementAndGet();
                again(held);
                return;
            }
            // The watch of a lock ends with the lock: the connection is closed, so nothing waits on it in the agent.
            held.lost().whenComplete((loss, released) -> connections.destroy(connection));
            await(held, connection);
        });
    }

    private void await(Held held, Transport.Connection connection) {
        List<String> words = List.of("LOCK.WATCH", held.acquisition.key(), String.valueOf(WATCH_FOR.toMillis()), "TOKEN",
                String.valueOf(held.token()));
        connection.send(words, WATCH_FOR.plus(connections.answerWithin)).whenComplete((reply, failure) -> {
            if (failure == null && reply == null && !held.isOver()) {
                await(held, connection);
                return;
            }
            watches.decrementAndGet();
            connections.destroy(connection);
            if (!held.isOver()) {
                held.wake(true);
                if (failure == null || !Refusals.isLasting(Refusals.unwrap(failure))) {
                    again(held);
                }
            }
        });
    }

}
