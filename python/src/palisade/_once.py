"""Jobs that run once, though many hosts start them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ._hold import Hold
from .options import DAY, checked_time

T = TypeVar("T")


@dataclass(frozen=True)
class Once(Generic[T]):
    """What became of a function that runs at most once in a time. True if it ran."""

    ran: bool
    value: T | None = None
    """What it returned, if it ran."""

    def __bool__(self) -> bool:
        return self.ran


def checked_min_hold(min_hold: object) -> float:
    """A time for which a lock is held at least."""
    return checked_time("min_hold", min_hold, 0.001, DAY)


async def end(hold: Hold, min_hold: float) -> None:
    """Ends a job: its lock stays for ``min_hold`` at least. Fails if it was lost."""
    if hold.valid_for > 0 and hold.held.held_for < min_hold:
        await hold.leave()
    else:
        await hold.release_unless_lost()


async def end_quietly(hold: Hold, min_hold: float) -> None:
    """The same, where there is another error already to tell of."""
    if hold.valid_for > 0 and hold.held.held_for < min_hold:
        await hold.leave()
    else:
        await hold.release_quietly()
