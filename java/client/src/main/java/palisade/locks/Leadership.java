package palisade.locks;

import java.util.concurrent.CompletableFuture;

/** The leadership of a candidate, until it resigns or loses the lock of the election. */
public final class Leadership implements AutoCloseable {

    private final LockHandle lock;

    private final long term;

    /** The number of the last proclamation. */
    private long sequence;

    Leadership(LockHandle lock) {
        this.lock = lock;
        this.term = lock.token();
    }

    /**
     * Returns the lock of the election, which tells of its loss.
     *
     * @return the lock
     */
    public LockHandle lock() {
        return lock;
    }

    /**
     * Returns the term: larger than that of every earlier leader, and constant while this one leads. It is a fencing token, as is
     * {@link LockHandle#token()}, which can rise meanwhile: use only one of the two with a resource.
     *
     * @return the term
     */
    public long term() {
        return term;
    }

    /**
     * Reports whether this candidate leads now, by the clock.
     *
     * @return {@link LockHandle#isValid()} of the lock
     */
    public boolean isValid() {
        return lock.isValid();
    }

    /**
     * Proclaims another value.
     *
     * @param value at most 1002 bytes
     * @throws LockLostException if the leadership is over
     */
    public void proclaim(String value) {
        Waits.join(proclaiming(Leader.checkValue(value)));
    }

    /**
     * Proclaims another value.
     *
     * @param value at most 1002 bytes
     * @return completed once it is proclaimed
     * @see #proclaim(String)
     */
    public CompletableFuture<Void> proclaimAsync(String value) {
        return lock.forCaller(proclaiming(Leader.checkValue(value)));
    }

    CompletableFuture<Void> proclaiming(String value) {
        return lock.noting(Leader.toNote(term, value), this::next);
    }

    /** Returns the next sequence number, which is larger than {@code there}. */
    private synchronized long next(long there) {
        sequence = Math.max(sequence, there) + 1;
        return sequence;
    }

    /**
     * Resigns: the next candidate leads.
     *
     * @return the outcome of the release
     */
    public Release resign() {
        return lock.release();
    }

    /**
     * Resigns at the end of a block.
     *
     * @throws LockLostException if the leadership was lost before
     */
    @Override
    public void close() {
        lock.close();
    }

}
