package palisade.locks;

/**
 * One acquisition of a lock, as the server knows it. The owner is new for each one, so that nobody mistakes another's grant for
 * its own.
 *
 * @param key the name of the lock
 * @param owner the name of the acquisition
 * @param ttl the length of the lease, in ns
 */
record Acquisition(String key, String owner, long ttl) {

    static Acquisition of(String key, long ttl) {
        return new Acquisition(key, Note.randomHex(16), ttl);
    }

}
