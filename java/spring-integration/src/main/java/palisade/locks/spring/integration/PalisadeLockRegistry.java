package palisade.locks.spring.integration;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import palisade.locks.LockOptions;
import palisade.locks.Palisade;

/**
 * A registry whose locks are locks of a {@link Palisade}. As Spring demands, a lock belongs to the thread that acquired it, which
 * may acquire it again. Leases are extended in the background, so {@link #renewLock(Object)} is needed only for a lock with a ttl
 * of its own ({@link DistributedLock#lock(Duration)}).
 */
public final class PalisadeLockRegistry implements RenewableLockRegistry<DistributedLock>, ExpirableLockRegistry<DistributedLock> {

    private final Palisade locks;

    private final String prefix;

    private final LockOptions options;

    private final Map<String, RegistryLock> known = new ConcurrentHashMap<>();

    /**
     * Creates a registry.
     *
     * @param locks the locks, which the caller closes
     * @param prefix comes before the name of each lock
     */
    public PalisadeLockRegistry(Palisade locks, String prefix) {
        this(locks, prefix, LockOptions.defaults().lockClass("spring"));
    }

    /**
     * Creates a registry with other options.
     *
     * @param locks the locks, which the caller closes
     * @param prefix comes before the name of each lock
     * @param options how to keep locks; their wait does not count
     */
    public PalisadeLockRegistry(Palisade locks, String prefix, LockOptions options) {
        this.locks = Objects.requireNonNull(locks, "locks");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.options = Objects.requireNonNull(options, "options");
    }

    /**
     * Returns the lock of a name: the same one each time, as long as somebody uses it.
     *
     * @param lockKey a text
     * @return a {@link RegistryLock}
     */
    @Override
    public RegistryLock obtain(Object lockKey) {
        if (!(lockKey instanceof String name)) {
            throw new IllegalArgumentException("the name of a lock must be a String, not " + lockKey);
        }
        return known.compute(name, (key, lock) -> (lock == null ? new RegistryLock(locks, prefix + key, options) : lock).touched());
    }

    /**
     * Extends a lock of the calling thread, to the ttl that it was acquired with, from now.
     *
     * @param lockKey its name
     * @throws IllegalStateException if the thread does not have the lock
     */
    @Override
    public void renewLock(Object lockKey) {
        held(lockKey).renew(null);
    }

    /**
     * Extends a lock of the calling thread.
     *
     * @param lockKey its name
     * @param ttl the new lease, from now
     * @throws IllegalStateException if the thread does not have the lock
     */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        held(lockKey).renew(Objects.requireNonNull(ttl, "ttl"));
    }

    private RegistryLock held(Object lockKey) {
        RegistryLock lock = lockKey instanceof String name ? known.get(name) : null;
        if (lock == null) {
            throw new IllegalStateException("no thread has the lock " + lockKey);
        }
        return lock;
    }

    /**
     * Forgets locks that nobody has, and that were not obtained for this long.
     *
     * @param age in ms
     */
    @Override
    public void expireUnusedOlderThan(long age) {
        known.values().removeIf(lock -> lock.isUnusedFor(age));
    }

}
