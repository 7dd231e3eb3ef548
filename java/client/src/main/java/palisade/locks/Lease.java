package palisade.locks;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.Optional;

/** Decides when a lock is extended and when it is lost. The time is handed to it, in ns of {@link Clock}. */
final class Lease {

    /** The largest time to answer an extension; never more than a third of the ttl. */
    private static final long EXTEND_WITHIN_MOST = SECONDS.toNanos(1);

    /** The bounds of the pause after a failed extension, which is a part of the ttl. */
    private static final long EXTEND_AGAIN_LEAST = MILLISECONDS.toNanos(20);

    private static final long EXTEND_AGAIN_MOST = SECONDS.toNanos(1);

    /** A wake-up that is later than this after the end of a lease shows that the program could not run. */
    private static final long LATE_MOST = MILLISECONDS.toNanos(50);

    private final long ttl;

    private final boolean autoExtend;

    private final long maxHold;

    private final long since;

    private long validUntil;

    private long extendAt;

    private long wakeAt;

    /** The last extension's failure in the background; {@code null} after one that succeeded. */
    private Throwable lastFailure;

    Lease(long ttl, boolean autoExtend, long maxHold, long validUntil, long now) {
        this.ttl = ttl;
        this.autoExtend = autoExtend;
        this.maxHold = maxHold;
        this.since = now;
        this.validUntil = validUntil;
        extended(validUntil);
    }

    long since() {
        return since;
    }

    long ttl() {
        return ttl;
    }

    /** Notes that the lock is valid until then: it is extended when a third of a lease has passed. */
    void extended(long until) {
        validUntil = Math.max(validUntil, until);
        extendAt = validUntil - ttl / 3 * 2;
        lastFailure = null;
    }

    /** Notes that an extension in the background has failed: the next one comes soon. */
    void failed(long now, Throwable failure) {
        lastFailure = failure;
        extendAt = now + Math.min(Math.max(ttl / 20, EXTEND_AGAIN_LEAST), EXTEND_AGAIN_MOST);
    }

    long validFor(long now) {
        return Math.max(0, validUntil - now);
    }

    private boolean mayExtend(long now) {
        return autoExtend && now - since < maxHold;
    }

    /** Returns for how long nothing is to be done. */
    long sleep(long now) {
        wakeAt = mayExtend(now) ? Math.min(extendAt, validUntil) : validUntil;
        return Math.max(0, wakeAt - now);
    }

    boolean isDue(long now) {
        return now >= extendAt && mayExtend(now);
    }

    /** Returns the ttl of an extension that shows whether the lock is held. A lease without extensions keeps what is left. */
    long checkTtl(long now) {
        return mayExtend(now) ? ttl : validFor(now);
    }

    /** Returns the time to answer an extension, which ends with the lease. */
    long answerWithin(long now) {
        return Math.max(MILLISECONDS.toNanos(1), Math.min(Math.min(EXTEND_WITHIN_MOST, ttl / 3), validFor(now)));
    }

    /** Returns why the lease is over; empty if it is not. */
    Optional<Loss> loss(long now) {
        if (now < validUntil) {
            return Optional.empty();
        }
        if (now - wakeAt > Math.max(LATE_MOST, ttl / 3)) {
            return Optional.of(Loss.of(LossReason.ASLEEP));
        }
        if (!autoExtend) {
            return Optional.of(Loss.of(LossReason.NOT_EXTENDED));
        }
        if (!mayExtend(now)) {
            return Optional.of(Loss.of(LossReason.MAX_HOLD));
        }
        String detail = lastFailure == null ? "" : String.valueOf(lastFailure.getMessage());
        return Optional.of(new Loss(LossReason.NOT_EXTENDED_IN_TIME, detail));
    }

}
