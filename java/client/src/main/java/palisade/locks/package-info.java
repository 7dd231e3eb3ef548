/**
 * Locks with fencing tokens on one Redis or Valkey server with the Palisade module, or on several by a {@code palisade agent}:
 * {@link palisade.locks.Palisade} acquires them, and each is a {@link palisade.locks.LockHandle}.
 *
 * <pre>{@code
 * try (Palisade locks = Palisade.open("redis://127.0.0.1:6379"); LockHandle lock = locks.lock("orders:42")) {
 *     if (lock.isValid()) {
 *         pay(42, lock.token());
 *     }
 * }
 * }</pre>
 */
package palisade.locks;
