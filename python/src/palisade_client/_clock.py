"""The clock that leases are counted on."""

from __future__ import annotations

import time

# Maximum drift between clocks, and maximum loss through rounding to milliseconds on both sides.
DRIFT = 0.01
ROUNDING = 0.002

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Returns seconds on a clock that nobody sets, and that runs while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # No Linux.

    def now() -> float:
        """Returns seconds on a clock that nobody sets. It may stand still while the machine sleeps."""
        return time.monotonic()


def valid_until(sent: float, waited: float, ttl: float) -> float:
    """Returns until when a holder may rely on a lease of ``ttl`` that was requested at ``sent``.

    The server counted ``waited`` before it granted. Its clock counts both, and may be faster than this one.
    """
    return sent + (waited + ttl) * (1 - DRIFT) - ROUNDING


def milliseconds(seconds: float) -> int:
    """Converts a time to the server's unit."""
    return round(seconds * 1000)
