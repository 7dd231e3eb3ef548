package palisade.locks.spring.integration;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.integration.support.locks.DistributedLock;
import palisade.locks.LockHandle;
import palisade.locks.LockLostException;
import palisade.locks.LockOptions;
import palisade.locks.NotAcquiredException;
import palisade.locks.Palisade;

/** A lock of a {@link PalisadeLockRegistry}. */
public final class RegistryLock implements DistributedLock {

    private static final Duration WAIT_MOST = Duration.ofDays(1);

    private final Palisade locks;

    private final String key;

    private final LockOptions options;

    /** Keeps the threads of this program apart, and counts how often one has the lock. */
    private final ReentrantLock local = new ReentrantLock(true);

    /** The lock itself; {@code null} while no thread has it. Only the thread that has {@link #local} sets it. */
    private volatile LockHandle handle;

    /** Whether a lock of the present holds was lost, so that the last unlock throws. Only who has {@link #local} uses it. */
    private boolean lost;

    private volatile long touched;

    RegistryLock(Palisade locks, String key, LockOptions options) {
        this.locks = locks;
        this.key = key;
        this.options = options;
    }

    RegistryLock touched() {
        touched = System.nanoTime();
        return this;
    }

    boolean isUnusedFor(long ms) {
        return !local.isLocked() && !local.hasQueuedThreads() && System.nanoTime() - touched >= TimeUnit.MILLISECONDS.toNanos(ms);
    }

    /**
     * Returns the lock itself, with its token and its loss. Do not release it: {@link #unlock()} does.
     *
     * @return the lock; empty if no thread has it
     */
    public Optional<LockHandle> handle() {
        return Optional.ofNullable(handle);
    }

    /** Waits until the lock is held. An interruption does not end the wait, and is marked again after it. */
    @Override
    public void lock() {
        uninterruptibly(options);
    }

    /**
     * Waits until the lock is held.
     *
     * @param ttl the lease, which is not extended in the background
     */
    @Override
    public void lock(Duration ttl) {
        uninterruptibly(options.ttl(ttl).autoExtend(false));
    }

    private void uninterruptibly(LockOptions wanted) {
        boolean interrupted = false;
        while (true) {
            try {
                acquire(wanted);
                break;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(options);
    }

    private void acquire(LockOptions wanted) throws InterruptedException {
        local.lockInterruptibly();
        hold(wanted);
    }

    /** Acquires the lock for a new hold of this thread, unless an earlier hold has it; anew if it was lost meanwhile. */
    private void hold(LockOptions wanted) throws InterruptedException {
        if (handle != null && handle.isValid()) {
            return;
        }
        lost = local.getHoldCount() > 1;
        if (handle != null) {
            handle.release();
            handle = null;
        }
        try {
            handle = locks.lock(key, wanted);
        } finally {
            if (handle == null) {
                local.unlock();
            }
        }
    }

    @Override
    public boolean tryLock() {
        try {
            return tryLock(0, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryAcquire(unit.toNanos(time), options);
    }

    /**
     * Waits until the lock is held, or the time is over.
     *
     * @param wait the time
     * @param ttl the lease, which is not extended in the background
     * @return whether it is held
     */
    @Override
    public boolean tryLock(Duration wait, Duration ttl) throws InterruptedException {
        return tryAcquire(wait.toNanos(), options.ttl(ttl).autoExtend(false));
    }

    private boolean tryAcquire(long nanos, LockOptions wanted) throws InterruptedException {
        long by = System.nanoTime() + nanos;
        if (!local.tryLock(nanos, TimeUnit.NANOSECONDS)) {
            return false;
        }
        long left = Math.min(Math.max(0, by - System.nanoTime()), WAIT_MOST.toNanos());
        try {
            hold(wanted.waitUpTo(Duration.ofMillis(TimeUnit.NANOSECONDS.toMillis(left))));
            return true;
        } catch (NotAcquiredException e) {
            // Earlier holds of a lost lock end too: a leader of Spring does not unlock after this.
            while (local.isHeldByCurrentThread()) {
                local.unlock();
            }
            return false;
        }
    }

    /**
     * Releases the lock, once this thread has done that as often as it acquired it.
     *
     * @throws IllegalStateException if the thread does not have the lock, as after a {@code tryLock} in vain that found it lost
     * @throws ConcurrentModificationException if the lock was lost before: the last steps may have been done without it
     */
    @Override
    public void unlock() {
        check();
        boolean isLast = local.getHoldCount() == 1;
        LockHandle last = isLast ? handle : null;
        try {
            if (last != null) {
                handle = null;
                last.close();
            }
            if (isLast && lost) {
                throw new ConcurrentModificationException("the lock " + key + " was lost before");
            }
        } catch (LockLostException e) {
            throw new ConcurrentModificationException(e.getMessage(), e);
        } finally {
            local.unlock();
        }
    }

    /** Extends the lock to {@code ttl} from now; if that is {@code null}, to its own ttl. */
    void renew(Duration ttl) {
        check();
        LockHandle own = handle().orElseThrow(() -> new IllegalStateException("the lock " + key + " was lost"));
        if (ttl == null) {
            own.extend();
        } else {
            own.extend(ttl);
        }
    }

    private void check() {
        if (!local.isHeldByCurrentThread()) {
            throw new IllegalStateException("this thread does not have the lock " + key);
        }
    }

    /** Has no conditions: they would have to reach other programs. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock that programs share has no conditions");
    }

}
