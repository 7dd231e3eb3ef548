/** Lock registries of Spring Integration in Redis or Valkey. */
module palisade.locks.spring.integration {

    requires transitive palisade.locks;
    requires transitive spring.integration.core;

    exports palisade.locks.spring.integration;

}
