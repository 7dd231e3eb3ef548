"""Jobs that run once, although many hosts start them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ._hold import Hold
from .options import DAY, checked_time

T = TypeVar("T")


@dataclass(frozen=True)
class Once(Generic[T]):
    """The outcome of a function that runs at most once per period. True if it ran."""

    ran: bool
    value: T | None = None
    """Its return value, if it ran."""

    def __bool__(self) -> bool:
        return self.ran


def checked_min_hold(min_hold: object) -> float:
    """Returns ``min_hold`` in seconds, if it is a valid minimum hold."""
    return checked_time("min_hold", min_hold, 0.001, DAY)


async def end(hold: Hold, min_hold: float) -> None:
    """Ends a job: its lock stays for at least ``min_hold``. Raises ``LockLost`` if it was lost."""
    if hold.valid_for > 0 and hold.held.held_for < min_hold:
        await hold.leave()
    else:
        await hold.release_unless_lost()


async def end_quietly(hold: Hold, min_hold: float) -> None:
    """Ends a job, while another error is already being raised."""
    if hold.valid_for > 0 and hold.held.held_for < min_hold:
        await hold.leave()
    else:
        await hold.release_quietly()
