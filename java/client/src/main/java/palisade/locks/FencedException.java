package palisade.locks;

/** A resource has seen a newer holder: the lock is lost, so stop. Nothing was written. */
public final class FencedException extends ServerException {

    private static final long serialVersionUID = 1L;

    /** The largest token that the resource has seen. */
    private final long seen;

    FencedException(String reply) {
        super(reply, reply);
        this.seen = Refusals.number(reply);
    }

    /**
     * Returns the largest token that the resource has seen.
     *
     * @return the token; 0 where the lock itself was asked ({@code HELD}), which knows no other one
     */
    public long seen() {
        return seen;
    }

}
