package palisade.locks;

/** Too few nodes behind a {@code palisade agent} can answer. The message has each node's reason. */
public final class NoQuorumException extends ServerException {

    private static final long serialVersionUID = 1L;

    NoQuorumException(String reply) {
        super(reply, reply);
    }

}
