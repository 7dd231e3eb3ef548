package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Waits in turn for the lock of an election, and proclaims its holder. A proclamation that fails is repeated while that may pass;
 * if the lock was lost before, all of this begins again.
 */
final class Campaign {

    /**
     * The pause before a winner proclaims itself again, in ns: short beside a lease, and long enough that nodes which return are
     * not flooded.
     */
    private static final long PROCLAIM_AGAIN = TimeUnit.MILLISECONDS.toNanos(100);

    private final Locking locks;

    private final String name;

    private final String value;

    private final LockOptions options;

    private final String flow;

    private final long by;

    private final CompletableFuture<Leadership> result = new CompletableFuture<>();

    private Locking.Taking taking;

    Campaign(Locking locks, String name, String value, LockOptions options, String flow) {
        this.locks = locks;
        this.name = name;
        this.value = Leader.checkValue(value);
        this.options = options;
        this.flow = flow;
        this.by = options.waitLimit().map(limit -> Clock.in(limit.toNanos())).orElse(Clock.NEVER);
    }

    CompletableFuture<Leadership> run() {
        Locking.Taking begun;
        synchronized (this) {
            if (result.isDone()) {
                return result;
            }
            begun = locks.begin(new Locking.Wanted(name, List.of(), Election.until(options, by), Duration.ZERO, flow));
            taking = begun;
        }
        begun.lock.whenComplete((lock, failure) -> {
            if (failure != null) {
                result.completeExceptionally(Refusals.unwrap(failure));
            } else {
                proclaim(new Leadership(lock));
            }
        });
        return result;
    }

    private void proclaim(Leadership leadership) {
        leadership.proclaiming(value).whenComplete((done, thrown) -> {
            if (thrown == null) {
                if (!result.complete(leadership)) {
                    leadership.lock().releaseAsync();
                }
                return;
            }
            Throwable failure = Refusals.unwrap(thrown);
            long left = by - Clock.now();
            if (!Refusals.isLasting(failure) && left > 0) {
                proclaimAfter(Math.min(PROCLAIM_AGAIN, left), leadership);
                return;
            }
            leadership.lock().releaseAsync();
            // The candidate had won, but observers may not have seen it.
            if (failure instanceof LockLostException lost && lost.loss().reason() != LossReason.CLOSED) {
                run();
            } else {
                result.completeExceptionally(failure);
            }
        });
    }

    /**
     * Proclaims again after a failure that passes: giving the lock back would end the wait early, although nodes may return. A
     * loss of the lock ends the pause.
     */
    private void proclaimAfter(long pause, Leadership leadership) {
        CompletableFuture<Void> paused = new CompletableFuture<>();
        Runnable cancel = locks.connections.after(pause, () -> paused.complete(null));
        // Also closing loses the lock, and no timer runs after that.
        CompletableFuture.anyOf(paused, leadership.lock().lost()).whenComplete((any, released) -> {
            cancel.run();
            if (!result.isDone()) {
                proclaim(leadership);
            }
        });
    }

    void giveUp(Throwable why) {
        synchronized (this) {
            result.completeExceptionally(why);
            taking.giveUp(why);
        }
        result.thenAccept(leadership -> leadership.lock().releaseAsync());
    }

}
