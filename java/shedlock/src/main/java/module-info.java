/** Locks of ShedLock in Redis or Valkey, with fencing tokens. */
module palisade.locks.shedlock {

    requires transitive palisade.locks;
    requires transitive net.javacrumbs.shedlock.core;

    exports palisade.locks.shedlock;

}
