package palisade.locks;

/** The outcome of a release. */
public enum Release {

    /** The lock was held until its release. */
    HELD,

    /** The lock was no longer held, so that the last steps may have been done without it. */
    LOST,

    /**
     * No answer shows which of the two. The lock was valid until the call, and is released in the background, or ends with its
     * lease.
     */
    UNKNOWN

}
