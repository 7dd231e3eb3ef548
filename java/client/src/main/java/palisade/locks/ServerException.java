package palisade.locks;

/** An error reply of the server or an agent. Those that need an answer of their own have a class of their own. */
public class ServerException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    /** The whole reply. */
    private final String reply;

    ServerException(String reply, String message) {
        super(message);
        this.reply = reply;
    }

    /**
     * Returns the first word of the reply, which is stable.
     *
     * @return the code, such as {@code OWNED}
     */
    public String code() {
        return codeOf(reply);
    }

    /**
     * Returns the whole reply, which is for people and may change.
     *
     * @return the text
     */
    public String reply() {
        return reply;
    }

    static String codeOf(String reply) {
        int end = reply.indexOf(' ');
        return end < 0 ? reply : reply.substring(0, end);
    }

}
