package palisade.locks;

/** Says who may hold a lock at the same time. */
public enum Mode {

    /** Nobody else. */
    EXCLUSIVE,

    /** Other readers: {@link Palisade#readLock(String)}. */
    SHARED,

    /** Permits with other numbers: {@link Palisade#semaphore}. */
    PERMIT

}
