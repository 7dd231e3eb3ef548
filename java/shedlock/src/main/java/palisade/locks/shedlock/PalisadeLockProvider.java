package palisade.locks.shedlock;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import palisade.locks.LockHandle;
import palisade.locks.LockOptions;
import palisade.locks.Palisade;

/**
 * Locks of ShedLock as locks of a {@link Palisade}. A lock that is wanted for longer than 10 s has a lease of 10 s that is
 * extended in the background, so that the next host waits that long after a crash, and not for {@code lockAtMostFor}. It ends
 * after {@code lockAtMostFor} all the same.
 * <p>
 * {@code lockAtLeastFor} is at most the server's {@code lock.max-ttl}, 60 s by default: the lock is left to a lease of that length.
 */
public final class PalisadeLockProvider implements ExtensibleLockProvider {

    /** The length of a lease that is extended in the background. */
    private static final Duration LEASE = Duration.ofSeconds(10);

    /** The shortest lease of a lock. */
    private static final Duration LEASE_LEAST = Duration.ofMillis(100);

    private final Palisade locks;

    private final String prefix;

    /**
     * Creates a provider.
     *
     * @param locks the locks, which the caller closes
     * @param prefix comes before the name of each lock, such as {@code job-lock:production:}
     */
    public PalisadeLockProvider(Palisade locks, String prefix) {
        this.locks = Objects.requireNonNull(locks, "locks");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
    }

    /**
     * Acquires a lock if it is free now.
     *
     * @return the lock; {@link TokenLock#handle()} of it has the fencing token; empty if another host has it
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            return locks.tryLock(prefix + configuration.getName(), options(configuration))
                    .map(handle -> new TokenLock(locks, handle, configuration));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new LockException("the thread was interrupted while it acquired " + configuration.getName(), e);
        }
    }

    /** Returns how to keep a lock for as long as is wanted, and no longer. */
    static LockOptions options(LockConfiguration configuration) {
        Duration most = roundUp(configuration.getLockAtMostFor());
        Duration least = roundUp(configuration.getLockAtLeastFor());
        LockOptions options = LockOptions.defaults().lockClass("shedlock");
        if (most.compareTo(LEASE) <= 0) {
            return options.ttl(longer(most, LEASE_LEAST)).autoExtend(false);
        }
        Duration ttl = longer(LEASE, least);
        return options.ttl(ttl).maxHold(longer(most.minus(ttl), Duration.ZERO));
    }

    private static Duration longer(Duration one, Duration other) {
        return one.compareTo(other) > 0 ? one : other;
    }

    /** Returns whole milliseconds, which servers count. */
    private static Duration roundUp(Duration time) {
        return Duration.ofMillis(time.plusNanos(999_999).toMillis());
    }

}
