/** Metrics of locks, by Micrometer. */
module palisade.locks.micrometer {

    requires transitive palisade.locks;
    requires transitive micrometer.core;

    exports palisade.locks.micrometer;

}
