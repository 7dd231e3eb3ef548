/**
 * Locks of ShedLock in Redis or Valkey:
 *
 * <pre>{@code
 * @Bean
 * LockProvider lockProvider(Palisade locks) {
 *     return new PalisadeLockProvider(locks, "job-lock:production:");
 * }
 * }</pre>
 */
package palisade.locks.shedlock;
