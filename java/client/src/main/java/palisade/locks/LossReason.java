package palisade.locks;

/** Says why a lock was lost. */
public enum LossReason {

    /**
     * The server reports that this owner does not hold the lock: an operator broke it, somebody deleted its key, or the server
     * lost its memory.
     */
    TAKEN_AWAY("somebody took it away, or the server forgot it"),

    /** The lease ended, because no extension was answered in time. */
    NOT_EXTENDED_IN_TIME("its lease ended before an extension was answered"),

    /** The lease ended, and {@link LockOptions#autoExtend(boolean)} is off. */
    NOT_EXTENDED("its lease ended, and nobody extended it"),

    /** The lease ended, and {@link LockOptions#maxHold(java.time.Duration)} forbids extending it further. */
    MAX_HOLD("it was held for as long as is allowed (maxHold)"),

    /** The lease ended while this program could not run: it was stopped or suspended, or had no processor. */
    ASLEEP("its lease ended while this program could not run"),

    /** The {@link Palisade} was closed, and released the lock. */
    CLOSED("its Palisade was closed, and gave it back");

    private final String message;

    LossReason(String message) {
        this.message = message;
    }

    String message() {
        return message;
    }

}
