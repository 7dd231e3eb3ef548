"""Options of acquiring and keeping locks, which are checked before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from .errors import BadArgument
from .listening import LockListener
from .loss import Loss

Seconds = float | int | timedelta
"""A time: a number of seconds, or a ``timedelta``. Servers count in milliseconds."""

Key = str | bytes
"""The name of a lock: a text (sent as UTF-8), or any bytes."""


class TryOptions(TypedDict, total=False):
    """Options of a lock that is not waited for."""

    ttl: Seconds
    """Length of the lease, 10 s by default: others wait this long after a holder dies. Up to the server's
    ``lock.max-ttl`` (60 s by default)."""
    note: str | bytes
    """A note for people, up to 1024 bytes: who holds the lock, and what for. Clients that find the lock held see it.
    Host, process and program by default."""
    holder: str
    """The holder id: one id for everything that one flow of control holds and waits for. ``palisade deadlocks`` uses
    it to find holders that wait for each other. 1 to 64 letters, digits, and ``. _ : / @ + -``. An id of this thread
    or task by default."""
    auto_extend: bool
    """Extends the lease in the background, whenever a third of it has passed. On by default."""
    max_hold: Seconds
    """Maximum time for which the lease is extended: a holder that hangs then loses the lock. An hour by default; no
    limit for a leader."""
    on_lost: Callable[[Loss], object] | None
    """Called once if the lock is lost: in the event loop, or on a thread of its own if there is none."""
    listener: LockListener | None
    """Receives the events of the lock, for metrics: ``palisade_client.prometheus.LockMetrics``, or
    one of your own."""
    lock_class: str
    """The kind of the lock for its listener, ``default`` by default. Use few classes: metrics keep each as long as the
    program runs."""


class LockOptions(TryOptions, total=False):
    """Options of acquiring and keeping a lock."""

    wait: Seconds | None
    """Maximum wait for the lock, up to a day; 0 for no wait. By default, or if ``None``, as long as needed."""


@dataclass(frozen=True)
class Checked:
    """Checked and complete options. Times are in seconds."""

    ttl: float
    wait: float | None
    note: bytes | None
    """``None`` for the default note."""
    holder: str | None
    """``None`` for that of the thread or task."""
    auto_extend: bool
    max_hold: float
    on_lost: Callable[[Loss], object] | None
    listener: LockListener | None
    lock_class: str


DAY = 86_400.0
NOTE_BYTES_MAX = 1024
PERMITS_MAX = 65_535
TTL_DEFAULT = 10.0
MAX_HOLD_DEFAULT = 3_600.0

_NAMES = frozenset({"ttl", "note", "holder", "auto_extend", "max_hold", "on_lost", "listener", "lock_class", "wait"})

_HOLDER = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")


def checked_time(name: str, value: object, least: float, most: float) -> float:
    """Returns ``value`` in seconds, if it is within these bounds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not least <= float(seconds) <= most:  # type: ignore[arg-type]
        raise BadArgument(f"{name} must be a number of seconds from {least:g} to {most:g}, or a timedelta, not {value!r}")
    return float(seconds)  # type: ignore[arg-type]


def checked_ttl(ttl: object) -> float:
    """Returns ``ttl`` if a server may accept it as a lease."""
    return checked_time("ttl", ttl, 0.001, DAY)


def checked_limit(limit: object) -> int:
    """Returns ``limit`` if it is a valid number of permits."""
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= PERMITS_MAX:
        return limit
    raise BadArgument(f"limit must be an integer from 1 to {PERMITS_MAX}, not {limit!r}")


def checked_key(key: object) -> bytes:
    """Returns the bytes of a key."""
    return _bytes_of("key", key)


def checked_text(name: str, text: object, most: int) -> bytes:
    """Returns the bytes of ``text``, at most ``most``."""
    encoded = _bytes_of(name, text)
    if len(encoded) > most:
        raise BadArgument(f"{name} must be at most {most} bytes long, not {len(encoded)}")
    return encoded


def _bytes_of(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a str or bytes, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"{name} cannot be sent as UTF-8: {error}") from None


def checked(options: dict[str, Any]) -> Checked:
    """Returns ``options``, checked."""
    for name in options:
        if name not in _NAMES:
            raise BadArgument(f"there is no option {name!r}: {', '.join(sorted(_NAMES))}")
    auto_extend, on_lost = options.get("auto_extend", True), options.get("on_lost")
    if not isinstance(auto_extend, bool):
        raise BadArgument(f"auto_extend must be True or False, not {auto_extend!r}")
    if on_lost is not None and not callable(on_lost):
        raise BadArgument("on_lost must be a function")
    listener, lock_class = options.get("listener"), options.get("lock_class", "default")
    if listener is not None and not isinstance(listener, LockListener):
        raise BadArgument(f"listener must be a LockListener, not {listener!r}")
    if not isinstance(lock_class, str):
        raise BadArgument(f"lock_class must be a str, not {lock_class!r}")
    wait, note, holder = options.get("wait"), options.get("note"), options.get("holder")
    if holder is not None and not (isinstance(holder, str) and _HOLDER.fullmatch(holder)):
        raise BadArgument(f"holder must be 1 to 64 letters, digits, . _ : / @ + or -, not {holder!r}")
    return Checked(
        ttl=checked_ttl(options.get("ttl", TTL_DEFAULT)),
        wait=None if wait is None else checked_time("wait", wait, 0, DAY),
        note=None if note is None else checked_text("note", note, NOTE_BYTES_MAX),
        holder=holder,
        auto_extend=auto_extend,
        max_hold=checked_time("max_hold", options.get("max_hold", MAX_HOLD_DEFAULT), 0, math.inf),
        on_lost=on_lost,
        listener=listener,
        lock_class=lock_class,
    )
