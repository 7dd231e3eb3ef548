package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Waits in turn for the lock of an election, and proclaims its holder; again if the lock was lost before that. */
final class Campaign {

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
            leadership.lock().releaseAsync();
            // The candidate had won, but observers may not have seen it.
            if (Refusals.unwrap(thrown) instanceof LockLostException lost && lost.loss().reason() != LossReason.CLOSED) {
                run();
            } else {
                result.completeExceptionally(Refusals.unwrap(thrown));
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
