package palisade.locks;

/** The lock was released before by this handle. */
public final class ReleasedException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    ReleasedException() {
        super("the lock was released");
    }

}
