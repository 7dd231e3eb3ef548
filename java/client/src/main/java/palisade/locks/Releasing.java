package palisade.locks;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Gives locks back. */
final class Releasing {

    /** The time for the answer to a wait that was given up; a lock that it grants is released. */
    private static final long LATE_ANSWER = TimeUnit.SECONDS.toNanos(1);

    private static final long AGAIN_LEAST = TimeUnit.MILLISECONDS.toNanos(20);

    private static final long AGAIN_MOST = TimeUnit.SECONDS.toNanos(1);

    private final Connections connections;

    Releasing(Connections connections) {
        this.connections = connections;
    }

    /**
     * A request that was sent, and whose answer nobody awaits any longer.
     *
     * @param connection {@code null} for the shared one
     * @param came the answer
     */
    record UnderWay(Transport.Connection connection, CompletableFuture<Object> came) {
    }

    /** Releases holds down to below {@code level}. */
    CompletableFuture<Release> release(Acquisition acquired, int level) {
        List<String> words = List.of("LOCK.RELEASE", acquired.key(), acquired.owner(), "LEVEL", String.valueOf(level));
        return connections.ask(connections.answerWithin.toNanos(), words).handle((answer, thrown) -> {
            if (thrown == null) {
                // After a repetition, Null may mean that the first request released it.
                return answer.reply() != null ? Release.HELD : answer.broke() ? Release.UNKNOWN : Release.LOST;
            }
            boolean gone = Refusals.unwrap(thrown) instanceof ServerException refused && refused.code().equals("WRONGTYPE");
            return gone ? Release.LOST : Release.UNKNOWN;
        });
    }

    /** Releases an acquisition in the background, whatever its state; it tries until its lease has ended. */
    void giveBack(Acquisition acquired, UnderWay sent) {
        CompletableFuture<Void> freed = releaseAtLast(acquired);
        if (sent != null) {
            // A request may reach the server only now, and be granted: only its answer tells.
            freed = freed.thenCompose(done -> comesFree(sent))
                    .thenCompose(free -> free ? CompletableFuture.completedFuture(null) : releaseAtLast(acquired));
        }
        connections.inBackground(freed);
    }

    /** Awaits the late answer of a request, and returns whether it is Null: nothing was granted. */
    private CompletableFuture<Boolean> comesFree(UnderWay sent) {
        CompletableFuture<Boolean> free = new CompletableFuture<>();
        Runnable late = sent.connection() == null ? () -> {
        } : connections.after(LATE_ANSWER, () -> {
            if (free.complete(false)) {
                connections.destroy(sent.connection());
            }
        });
        sent.came().whenComplete((reply, failure) -> {
            if (free.complete(failure == null && reply == null)) {
                late.run();
                if (sent.connection() != null) {
                    connections.giveIdle(sent.connection());
                }
            }
        });
        return free;
    }

    private CompletableFuture<Void> releaseAtLast(Acquisition acquired) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        releaseUntil(acquired, Clock.in(acquired.ttl()), AGAIN_LEAST, done);
        return done;
    }

    private void releaseUntil(Acquisition acquired, long until, long pause, CompletableFuture<Void> done) {
        release(acquired, 1).thenAccept(outcome -> {
            // A lock that cannot be released ends with its lease.
            if (outcome != Release.UNKNOWN || Clock.now() >= until || connections.isClosing()) {
                done.complete(null);
            } else {
                connections.after(pause, () -> releaseUntil(acquired, until, Math.min(2 * pause, AGAIN_MOST), done));
            }
        });
    }


}
