/** Locks in memory, for unit tests. */
module palisade.locks.testing {

    requires transitive palisade.locks;

    exports palisade.locks.testing;

}
