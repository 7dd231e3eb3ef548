package palisade.locks;

/** The server gave an answer that no lock server gives. It is refused rather than guessed at. */
public final class UnexpectedReplyException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    UnexpectedReplyException(Object reply, String belongs) {
        super("the server answered \"" + Note.printable(String.valueOf(reply)) + "\" where " + belongs + " belongs");
    }

}
