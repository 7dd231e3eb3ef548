package palisade.locks;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** The clock of leases. Instants are nanoseconds on a clock that nobody sets. */
final class Clock {

    /** Later than every instant that the clock shows. */
    static final long NEVER = Long.MAX_VALUE;

    /** Maximum drift between clocks, in percent. */
    private static final long DRIFT_PERCENT = 1;

    /** Maximum loss through rounding to milliseconds on both sides. */
    private static final long ROUNDING = TimeUnit.MILLISECONDS.toNanos(2);

    private static final long ORIGIN = System.nanoTime();

    private Clock() {
    }

    static long now() {
        return System.nanoTime() - ORIGIN;
    }

    /** Returns the instant {@code nanos} from now; {@link #NEVER} where that is too far to count. */
    static long in(long nanos) {
        long at = now() + nanos;
        return at < 0 ? NEVER : at;
    }

    /**
     * Returns until when a holder may rely on a lease of {@code ttl}, requested at {@code sent} and granted after a wait of
     * {@code waited}. The server's clock counts both, and may be faster than this one.
     */
    static long validUntil(long sent, long waited, long ttl) {
        return sent + (waited + ttl) / 100 * (100 - DRIFT_PERCENT) - ROUNDING;
    }

    /** Converts a time to the server's unit, rounded up. */
    static long toMillis(long nanos) {
        return (nanos + 999_999) / 1_000_000;
    }

    static String shown(long nanos) {
        return Duration.ofMillis(TimeUnit.NANOSECONDS.toMillis(nanos)).toString();
    }

}
