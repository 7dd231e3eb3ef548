package palisade.locks;

/** Somebody has to act: the server lacks the module, or the client a password or a permission. The message says what to do. */
public final class MisconfiguredException extends ServerException {

    private static final long serialVersionUID = 1L;

    MisconfiguredException(String reply, String advice) {
        super(reply, advice + " (" + reply + ")");
    }

}
