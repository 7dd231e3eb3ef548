package palisade.locks;

import java.util.Objects;

/**
 * The loss of a lock that was held: stop the work that it protects.
 *
 * @param reason why the lock was lost
 * @param detail for people; may be empty
 */
public record Loss(LossReason reason, String detail) {

    /**
     * Creates a loss.
     *
     * @param reason why the lock was lost
     * @param detail for people; may be empty
     */
    public Loss {
        Objects.requireNonNull(reason, "reason");
        Objects.requireNonNull(detail, "detail");
    }

    static Loss of(LossReason reason) {
        return new Loss(reason, "");
    }

    /** Describes the loss for people. */
    @Override
    public String toString() {
        return "the lock is lost: " + reason.message() + (detail.isEmpty() ? "" : ": " + detail);
    }

}
