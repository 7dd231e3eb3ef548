/**
 * Metrics of locks, by Micrometer:
 *
 * <pre>{@code
 * Palisade locks = Palisade.builder("redis://127.0.0.1:6379").listener(new LockMetrics(registry)).build();
 * }</pre>
 */
package palisade.locks.micrometer;
