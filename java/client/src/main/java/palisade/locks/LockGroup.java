package palisade.locks;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;

/** Several locks that were acquired together: {@link Palisade#lockAll(Collection)}. */
public final class LockGroup implements AutoCloseable {

    private final List<LockHandle> locks;

    private LockGroup(List<LockHandle> locks) {
        this.locks = List.copyOf(locks);
    }

    /** Acquires one lock after the other, so that callers never wait for each other in a circle; all or none. */
    static LockGroup acquire(Locking locking, Collection<String> keys, LockOptions options) throws InterruptedException {
        List<String> ordered = keys.stream().map(Palisade::checkKey).distinct().sorted(LockGroup::compareBytes).toList();
        if (ordered.isEmpty()) {
            throw new IllegalArgumentException("name one key at least");
        }
        long by = options.waitLimit().map(limit -> Clock.in(limit.toNanos())).orElse(Clock.NEVER);
        List<LockHandle> all = new ArrayList<>();
        try {
            for (String key : ordered) {
                all.add(locking.take(key, List.of(), Election.until(options, by)));
                // One may have been lost while the next was waited for.
                all.forEach(LockHandle::check);
            }
        } catch (Throwable e) {
            all.forEach(LockHandle::releaseAsync);
            throw e;
        }
        return new LockGroup(all);
    }

    /** Compares as servers and other languages do: the order of UTF-16 is another one. */
    private static int compareBytes(String one, String other) {
        return Arrays.compareUnsigned(one.getBytes(StandardCharsets.UTF_8), other.getBytes(StandardCharsets.UTF_8));
    }

    /**
     * Returns the locks, in the order of the bytes of their names.
     *
     * @return the locks
     */
    public List<LockHandle> locks() {
        return locks;
    }

    /**
     * Reports whether all may be relied on now, by the clock.
     *
     * @return whether each {@link LockHandle#isValid()}
     */
    public boolean isValid() {
        return locks.stream().allMatch(LockHandle::isValid);
    }

    /**
     * Releases all, in the reverse order.
     *
     * @throws LockLostException if one was lost before; the losses of others are suppressed exceptions of it
     */
    @Override
    public void close() {
        List<LockHandle> reverse = new ArrayList<>(locks);
        Collections.reverse(reverse);
        LockLostException lost = null;
        for (LockHandle lock : reverse) {
            try {
                lock.close();
            } catch (LockLostException e) {
                if (lost == null) {
                    lost = e;
                } else {
                    lost.addSuppressed(e);
                }
            }
        }
        if (lost != null) {
            throw lost;
        }
    }

}
