/**
 * Locks in memory, for unit tests of programs that hold locks:
 *
 * <pre>{@code
 * LocksInMemory server = new LocksInMemory();
 * try (Palisade locks = server.open()) {
 *     assertThrows(LockLostException.class, () -> importAll(locks, () -> server.takeAway("import")));
 * }
 * }</pre>
 */
package palisade.locks.testing;
