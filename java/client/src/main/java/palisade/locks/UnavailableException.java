package palisade.locks;

/** The server cannot be reached, or did not answer in time. It may have executed the command. */
public final class UnavailableException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    /** True of a connection that ended, so that a new one may do better. */
    private final boolean broken;

    /**
     * Creates a failure of a {@link Transport}.
     *
     * @param message what happened, with the address
     * @param broken whether a connection ended that was open, so that a new one may do better
     * @param cause the failure below; may be {@code null}
     */
    public UnavailableException(String message, boolean broken, Throwable cause) {
        super(message, cause);
        this.broken = broken;
    }

    boolean isBroken() {
        return broken;
    }

}
