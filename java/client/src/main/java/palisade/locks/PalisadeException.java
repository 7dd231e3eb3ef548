package palisade.locks;

/** A failure of an operation on locks. An argument out of its bounds is an {@link IllegalArgumentException} instead. */
public class PalisadeException extends RuntimeException implements Cloneable {

    private static final long serialVersionUID = 1L;

    /** The name of the lock. */
    private String key;

    PalisadeException(String message) {
        // Without a cause, not with one that is still to come: that is the exception itself, in a copy another one.
        this(message, null);
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

    /** Returns a copy that names the lock, unless one is named. Other callers may share this exception for other locks. */
    PalisadeException of(String name) {
        if (key != null) {
            return this;
        }
        try {
            PalisadeException named = (PalisadeException) clone();
            named.key = name;
            return named;
        } catch (CloneNotSupportedException e) {
            throw new AssertionError(e);
        }
    }

    /** Returns the message, after the name of the lock. */
    @Override
    public String getMessage() {
        return key == null ? super.getMessage() : Note.printable(key) + ": " + super.getMessage();
    }

}
