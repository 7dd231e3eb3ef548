"""Events of locks, for metrics. ``palisade_client.prometheus`` counts them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .loss import Loss

_log = logging.getLogger("palisade_client")


@dataclass(frozen=True)
class Kind:
    """A kind of locks. Metrics count by kind, since names of locks are unlimited."""

    lock_class: str
    """The option ``lock_class``."""
    mode: Literal["exclusive", "shared", "permit"]
    """The mode as the lock was acquired."""


class LockListener:
    """Receives the events of locks: the option ``listener``.

    The methods run in the event loop of the connections, so they must not block. An exception that they raise is
    logged, and changes nothing. Times are in seconds.
    """

    def acquired(self, kind: Kind, waited: float) -> None:
        """Reports a granted lock, ``waited`` after the call."""

    def failed(self, kind: Kind, waited: float, error: BaseException) -> None:
        """Reports an acquisition that failed, or was given up."""

    def extended(self, kind: Kind, is_extended: bool) -> None:
        """Reports an extension in the background. One that failed is tried again while the lock is valid."""

    def released(self, kind: Kind, held_for: float) -> None:
        """Reports the release, or the hand-over, of a lock that was held until then."""

    def lost(self, kind: Kind, held_for: float, loss: Loss) -> None:
        """Reports the loss of a lock."""


class Listening:
    """The listener of one acquisition."""

    def __init__(self, listener: LockListener | None, lock_class: str, mode: Sequence[str | bytes | int]) -> None:
        self._listener = listener
        shared_or_permit: Literal["shared", "permit"] = "shared" if mode[0:1] == ("SHARED",) else "permit"
        self._kind = Kind(lock_class, shared_or_permit if mode else "exclusive")

    def report(self, what: Callable[[LockListener, Kind], object]) -> None:
        """Calls the listener, if there is one."""
        if self._listener is None:
            return
        try:
            what(self._listener, self._kind)
        except Exception:
            _log.warning("a listener of locks failed", exc_info=True)
