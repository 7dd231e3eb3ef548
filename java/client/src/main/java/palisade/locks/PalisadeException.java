package palisade.locks;

/** A failure of an operation on locks. An argument out of its bounds is an {@link IllegalArgumentException} instead. */
public class PalisadeException extends RuntimeException {

    private static final long serialVersionUID = 1L;

    /** The name of the lock. */
    private String key;

    PalisadeException(String message) {
        super(message);
    }

    PalisadeException(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Returns the name of the lock.
     *
     * @return the name; {@code null} where the failure belongs to no lock
     */
    public String key() {
        return key;
    }

    /** Names the lock, unless that has been done. */
    PalisadeException of(String name) {
        if (key == null) {
            key = name;
        }
        return this;
    }

    /** Returns the message, after the name of the lock. */
    @Override
    public String getMessage() {
        return key == null ? super.getMessage() : Note.printable(key) + ": " + super.getMessage();
    }

}
