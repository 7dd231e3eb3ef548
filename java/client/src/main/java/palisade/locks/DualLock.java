package palisade.locks;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;

/**
 * Both locks of a resource, while programs move from another library to this one: {@link Palisade#lockBoth}. The old lock is one
 * of Redisson, Spring Integration, or anything that is a {@link Lock}. If the old lock belongs to a thread, acquire and close both
 * on that thread. It is extended, or not, as its library does it.
 */
public final class DualLock implements AutoCloseable {

    private final Lock old;

    private final LockHandle lock;

    private DualLock(Lock old, LockHandle lock) {
        this.old = old;
        this.lock = lock;
    }

    static DualLock acquire(Lock old, Locking locking, String key, LockOptions options) throws InterruptedException {
        Palisade.checkKey(key);
        long by = options.waitLimit().map(limit -> Clock.in(limit.toNanos())).orElse(Clock.NEVER);
        if (by == Clock.NEVER) {
            old.lockInterruptibly();
        } else if (!old.tryLock(Math.max(0, by - Clock.now()), TimeUnit.NANOSECONDS)) {
            throw NotAcquiredException.ofOld(options.waitLimit().get().toNanos()).of(key);
        }
        try {
            return new DualLock(old, locking.take(key, List.of(), Election.until(options, by)));
        } catch (Throwable e) {
            unlockAfter(e, old);
            throw e;
        }
    }

    /**
     * Returns the new lock, with its token.
     *
     * @return the lock
     */
    public LockHandle lock() {
        return lock;
    }

    /**
     * Releases both, the old one last.
     *
     * @throws LockLostException if the new one was lost before; what the old one threw is a suppressed exception of it
     * @throws RuntimeException of the old one, which throws {@link IllegalMonitorStateException} or the like if it was lost
     */
    @Override
    public void close() {
        try {
            lock.close();
        } catch (LockLostException e) {
            unlockAfter(e, old);
            throw e;
        }
        old.unlock();
    }

    /** Unlocks the old lock after {@code failure}, to which a failure of its own is added. */
    private static void unlockAfter(Throwable failure, Lock old) {
        try {
            old.unlock();
        } catch (RuntimeException also) {
            failure.addSuppressed(also);
        }
    }
}
