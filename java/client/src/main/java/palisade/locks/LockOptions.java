package palisade.locks;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/** Says how a lock is acquired and kept. Immutable: each method returns changed options, and refuses what is out of bounds. */
public final class LockOptions {

    static final int PERMITS_MAX = 65_535;

    static final Duration DAY = Duration.ofDays(1);

    /** A shorter lease is most likely meant in another unit, and it is extended three times in its length. */
    static final Duration TTL_LEAST = Duration.ofMillis(100);

    private static final LockOptions DEFAULTS =
            new LockOptions(Duration.ofSeconds(10), null, Note.DEFAULT, null, true, null, "default");

    private static final Duration MAX_HOLD = Duration.ofHours(1);

    private final Duration ttl;

    private final Duration wait;

    private final String note;

    private final String holder;

    private final boolean autoExtend;

    /** {@code null} if none was set. */
    private final Duration maxHold;

    private final String lockClass;

    private LockOptions(Duration ttl, Duration wait, String note, String holder, boolean autoExtend, Duration maxHold,
            String lockClass) {
        this.ttl = ttl;
        this.wait = wait;
        this.note = note;
        this.holder = holder;
        this.autoExtend = autoExtend;
        this.maxHold = maxHold;
        this.lockClass = lockClass;
    }

    /**
     * Returns the options of a lock for which nothing else was said.
     *
     * @return the defaults
     */
    public static LockOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Sets the length of the lease: others wait this long after a holder dies. 10 s by default; from 100 ms to the server's
     * {@code lock.max-ttl} (60 s by default).
     *
     * @param ttl whole milliseconds
     * @return the changed options
     */
    public LockOptions ttl(Duration ttl) {
        return new LockOptions(checkTtl(ttl), wait, note, holder, autoExtend, maxHold, lockClass);
    }

    /**
     * Limits the wait for the lock, up to a day; zero for no wait. There is no limit by default.
     *
     * @param limit whole milliseconds
     * @return the changed options
     */
    public LockOptions waitUpTo(Duration limit) {
        Duration most = within("waitUpTo", limit, Duration.ZERO, DAY);
        return new LockOptions(ttl, most, note, holder, autoExtend, maxHold, lockClass);
    }

    /**
     * Sets a note for people, up to 1024 bytes: who holds the lock, and what for. Clients that find the lock held see it.
     * Host, process and program by default.
     *
     * @param note the text; may be empty
     * @return the changed options
     */
    public LockOptions note(String note) {
        int bytes = Note.bytesOf(Objects.requireNonNull(note, "note"));
        if (bytes > Note.BYTES_MAX) {
            throw new IllegalArgumentException("the note must be at most " + Note.BYTES_MAX + " bytes long, not " + bytes);
        }
        return new LockOptions(ttl, wait, note, holder, autoExtend, maxHold, lockClass);
    }

    /**
     * Sets one id for all that one flow of control holds and waits for. {@code palisade deadlocks} finds holders by it that
     * wait for each other. By default it is the id of the calling thread; a lock that is acquired by a future has an id of its
     * own.
     *
     * @param id 1 to 64 letters, digits, and {@code . _ : / @ + -}
     * @return the changed options
     */
    public LockOptions holderId(String id) {
        if (!Note.HOLDER.matcher(Objects.requireNonNull(id, "id")).matches()) {
            throw new IllegalArgumentException("the holder id must be 1 to 64 letters, digits, . _ : / @ + or -, not \""
                    + Note.printable(id) + '"');
        }
        return new LockOptions(ttl, wait, note, id, autoExtend, maxHold, lockClass);
    }

    /**
     * Says whether the lease is extended in the background, whenever a third of it has passed. It is by default.
     *
     * @param extend whether it is
     * @return the changed options
     */
    public LockOptions autoExtend(boolean extend) {
        return new LockOptions(ttl, wait, note, holder, extend, maxHold, lockClass);
    }

    /**
     * Limits how long the lease is extended: a holder that hangs then loses the lock. An hour by default; a leader has no limit.
     *
     * @param most at least zero
     * @return the changed options
     */
    public LockOptions maxHold(Duration most) {
        return new LockOptions(ttl, wait, note, holder, autoExtend,
                within("maxHold", most, Duration.ZERO, Duration.ofDays(36_500)), lockClass);
    }

    /**
     * Sets the class of the lock for a {@link LockListener}, such as {@code orders} for {@code orders:42}: names of locks are
     * unlimited. {@code default} by default.
     *
     * @param name the class; one of few
     * @return the changed options
     */
    public LockOptions lockClass(String name) {
        return new LockOptions(ttl, wait, note, holder, autoExtend, maxHold, Objects.requireNonNull(name, "name"));
    }

    /** Returns the same without a limit of the hold, unless one is set. */
    LockOptions ofLeader() {
        return maxHold != null ? this : maxHold(Duration.ofDays(36_500));
    }

    Duration ttl() {
        return ttl;
    }

    Optional<Duration> waitLimit() {
        return Optional.ofNullable(wait);
    }

    String note() {
        return note;
    }

    Optional<String> holderId() {
        return Optional.ofNullable(holder);
    }

    boolean autoExtend() {
        return autoExtend;
    }

    /** Returns the limit of the hold, in ns. */
    long maxHold() {
        return (maxHold == null ? MAX_HOLD : maxHold).toNanos();
    }

    String lockClass() {
        return lockClass;
    }

    static Duration checkTtl(Duration ttl) {
        return within("ttl", ttl, TTL_LEAST, DAY);
    }

    /** Returns a time that lies within these bounds, and is a whole number of the server's milliseconds. */
    static Duration within(String name, Duration time, Duration least, Duration most) {
        Objects.requireNonNull(time, name);
        if (time.compareTo(least) >= 0 && time.compareTo(most) <= 0 && time.getNano() % 1_000_000 == 0) {
            return time;
        }
        boolean small = time.compareTo(Duration.ZERO) > 0 && time.compareTo(TTL_LEAST) < 0;
        String hint = small && time.compareTo(least) < 0 ? " (perhaps Duration.ofSeconds was meant)" : "";
        throw new IllegalArgumentException(
                name + " must be whole milliseconds from " + least + " to " + most + ", not " + time + hint);
    }

    static int checkLimit(int limit) {
        if (limit < 1 || limit > PERMITS_MAX) {
            throw new IllegalArgumentException("the limit must be from 1 to " + PERMITS_MAX + ", not " + limit);
        }
        return limit;
    }

}
