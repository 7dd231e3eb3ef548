package palisade.locks;

import java.time.Duration;

/**
 * Receives the events of all locks of a {@link Palisade}, for metrics. The methods run on the threads of connections,
 * so they must not block. An exception that they throw is logged, and changes nothing.
 */
public interface LockListener {

    /**
     * A kind of locks. Metrics count by kind, since names of locks are unlimited.
     *
     * @param lockClass the word of {@link LockOptions#lockClass}
     * @param mode as the lock was acquired
     */
    record Kind(String lockClass, Mode mode) {
    }

    /**
     * Reports a granted lock.
     *
     * @param kind its kind
     * @param waited the time from the call to the grant
     */
    default void acquired(Kind kind, Duration waited) {
    }

    /**
     * Reports an acquisition that failed, or was given up.
     *
     * @param kind its kind
     * @param waited the time from the call to its end
     * @param failure what its caller got
     */
    default void failed(Kind kind, Duration waited, Throwable failure) {
    }

    /**
     * Reports an extension in the background.
     *
     * @param kind the kind of the lock
     * @param extended whether it succeeded; if not, it is tried again while the lock is valid
     */
    default void extended(Kind kind, boolean extended) {
    }

    /**
     * Reports the release of a lock that was held until then, or its {@linkplain LockHandle#handOver() hand-over}.
     *
     * @param kind its kind
     * @param heldFor the time since the grant
     */
    default void released(Kind kind, Duration heldFor) {
    }

    /**
     * Reports the loss of a lock.
     *
     * @param kind its kind
     * @param heldFor the time since the grant
     * @param reason why it was lost
     */
    default void lost(Kind kind, Duration heldFor, LossReason reason) {
    }

}
