package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A limited number of permits. Each has a number, from 1 to the limit, that no other holder has at the time: it can be a
 * worker's id, a shard or a port. Its token is larger than that of every earlier permit with its number, so a resource
 * remembers one largest token for each number.
 */
public final class Semaphore {

    private final Locking locks;

    private final String key;

    private final List<String> mode;

    Semaphore(Locking locks, String key, int limit) {
        this.locks = locks;
        this.key = Palisade.checkKey(key);
        this.mode = List.of("LIMIT", String.valueOf(LockOptions.checkLimit(limit)));
    }

    /**
     * Waits in turn until a permit is free.
     *
     * @return the permit; see {@link LockHandle#number()}
     * @throws InterruptedException if the thread is interrupted, which gives the wait up
     */
    public LockHandle acquire() throws InterruptedException {
        return acquire(locks.defaults);
    }

    /**
     * Waits in turn until a permit is free.
     *
     * @param options how to wait, and how to keep it
     * @return the permit
     * @throws InterruptedException if the thread is interrupted, which gives the wait up
     */
    public LockHandle acquire(LockOptions options) throws InterruptedException {
        return locks.take(key, mode, options);
    }

    /**
     * Waits in turn until a permit is free.
     *
     * @param options how to wait, and how to keep it
     * @return the permit; cancelling it, or completing it otherwise, gives the wait up
     */
    public CompletableFuture<LockHandle> acquireAsync(LockOptions options) {
        return locks.takeAsync(key, mode, options);
    }

    /**
     * Acquires a permit if one is free now.
     *
     * @return the permit; empty if others have all
     * @throws InterruptedException if the thread is interrupted
     */
    public Optional<LockHandle> tryAcquire() throws InterruptedException {
        return locks.tryTake(key, mode, locks.defaults, Duration.ZERO);
    }

}
