package palisade.locks.shedlock;

import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import palisade.locks.LockHandle;
import palisade.locks.LockLostException;
import palisade.locks.Palisade;

/** A lock of ShedLock that has a fencing token. */
public final class TokenLock extends AbstractSimpleLock {

    private final Palisade locks;

    private final LockHandle handle;

    TokenLock(Palisade locks, LockHandle handle, LockConfiguration configuration) {
        super(configuration);
        this.locks = locks;
        this.handle = handle;
    }

    /**
     * Returns the lock itself, with its token and its loss. Do not release it: {@link #unlock()} does.
     *
     * @return the lock
     */
    public LockHandle handle() {
        return handle;
    }

    /** Throws {@link LockLostException} if the lock was lost before: the last steps may have been done without it. */
    @Override
    protected void doUnlock() {
        handle.closeNotBefore(lockConfiguration.getLockAtLeastFor());
    }

    /** Takes the lock over with new times, and with the same token. */
    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
        try {
            LockHandle extended = locks.adopt(handle.handOver(), PalisadeLockProvider.options(configuration));
            return Optional.of(new TokenLock(locks, extended, configuration));
        } catch (LockLostException e) {
            return Optional.empty();
        }
    }

}
