/** Locks with fencing tokens on Redis or Valkey. */
module palisade.locks {

    requires transitive lettuce.core;
    requires io.netty.buffer;

    exports palisade.locks;

}
