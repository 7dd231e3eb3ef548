package palisade.locks;

import java.util.Optional;

/** Another owner has the lock. */
public final class NotAcquiredException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    /** Says why a lock was not acquired. */
    public enum Reason {

        /** The lock is not free, and no wait was allowed. */
        HELD,

        /** The lock was not free in time. */
        TIMED_OUT,

        /** The lock was granted, but nothing of its lease was left when the answer arrived. */
        TOO_LATE

    }

    /** The reason. */
    private final Reason reason;

    private final transient Holder holder;

    NotAcquiredException(Reason reason, long waited, Holder holder) {
        this(reason, holder, describe(reason, waited, holder));
    }

    private NotAcquiredException(Reason reason, Holder holder, String message) {
        super(message);
        this.reason = reason;
        this.holder = holder;
    }

    /** Returns the exception of the old one of two locks. */
    static NotAcquiredException ofOld(long waited) {
        Reason reason = waited == 0 ? Reason.HELD : Reason.TIMED_OUT;
        return new NotAcquiredException(reason, null, "of two locks, the old one: " + describe(reason, waited, null));
    }

    private static String describe(Reason reason, long waited, Holder holder) {
        String message = switch (reason) {
            case HELD -> "somebody else holds the lock";
            case TIMED_OUT -> "the lock was not free within " + Clock.shown(waited);
            case TOO_LATE -> "the lock was granted, but nothing of its lease was left when this program heard of it";
        };
        if (holder != null) {
            message += "; it has been held for " + holder.heldFor();
            if (!holder.note().isEmpty()) {
                message += " by \"" + Note.printable(holder.note()) + '"';
            }
        }
        return message;
    }

    /**
     * Returns why the lock was not acquired.
     *
     * @return the reason
     */
    public Reason reason() {
        return reason;
    }

    /**
     * Returns the holder; of several, the one that has held the lock longest.
     *
     * @return the holder; empty if the server did not report one
     */
    public Optional<Holder> holder() {
        return Optional.ofNullable(holder);
    }

}
