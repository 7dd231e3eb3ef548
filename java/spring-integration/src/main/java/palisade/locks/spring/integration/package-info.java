/**
 * Lock registries of Spring Integration in Redis or Valkey:
 *
 * <pre>{@code
 * @Bean
 * LockRegistry<?> lockRegistry(Palisade locks) {
 *     return new PalisadeLockRegistry(locks, "orders:");
 * }
 * }</pre>
 */
package palisade.locks.spring.integration;
