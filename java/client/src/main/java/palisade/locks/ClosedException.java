package palisade.locks;

/** The {@link Palisade} was closed. */
public final class ClosedException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    ClosedException() {
        super("this Palisade was closed: open another one");
    }

}
