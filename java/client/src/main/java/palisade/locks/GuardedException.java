package palisade.locks;

import java.time.Duration;

/** The server may have forgotten grants, and grants nothing until they have ended. */
public final class GuardedException extends ServerException {

    private static final long serialVersionUID = 1L;

    /** The time after which a retry makes sense. */
    private final Duration retryAfter;

    GuardedException(String reply) {
        super(reply, reply);
        this.retryAfter = Duration.ofMillis(Refusals.number(reply));
    }

    /**
     * Returns the time after which a retry makes sense.
     *
     * @return the time from the reply on
     */
    public Duration retryAfter() {
        return retryAfter;
    }

}
