/** Locks with fencing tokens on Redis or Valkey. */
module palisade.locks {

    requires transitive lettuce.core;

    exports palisade.locks;


}
