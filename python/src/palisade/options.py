"""How locks are taken and kept: the options, and what is checked before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from .errors import BadArgument
from .loss import Loss

Seconds = float | int | timedelta
"""A time: a number of seconds, or a ``timedelta``. Servers count in milliseconds."""

Key = str | bytes
"""The name of a lock: a text (sent as UTF-8), or any bytes."""


class TryOptions(TypedDict, total=False):
    """How a lock is taken and kept, if it is not waited for."""

    ttl: Seconds
    """Length of the lease, 10 s unless set: for so long others wait when a holder dies. Up to the server's ``lock.max-ttl`` (60 s
    unless set otherwise there)."""
    note: str | bytes
    """For people, up to 1024 bytes: who holds the lock, and what for. Shown to those who find it held. Unless set: host, process and
    program."""
    holder: str
    """Names who takes the lock: one id for everything that one flow of control holds and waits for, by which ``palisade deadlocks`` finds
    holders that wait for each other. 1 to 64 letters, digits, and ``. _ : / @ + -``. Unless set: an id of this thread or task."""
    auto_extend: bool
    """Whether the lease is extended in the background, whenever a third of it has gone. It is, unless this is ``False``."""
    max_hold: Seconds
    """For how long the lease is extended at most: a holder that hangs is let go then. An hour unless set; a leader has no limit
    unless set."""
    on_lost: Callable[[Loss], object] | None
    """Called once if the lock is lost: in the event loop, or on a thread of its own where there is none."""


class LockOptions(TryOptions, total=False):
    """How a lock is taken and kept."""

    wait: Seconds | None
    """How long to wait for the lock at most, up to a day. Unless set, or ``None``: as long as it takes. 0: not at all."""


@dataclass(frozen=True)
class Checked:
    """Options, checked and complete. Times are in seconds."""

    ttl: float
    wait: float | None
    note: bytes | None
    """``None``: the default one."""
    holder: str | None
    """``None``: that of the thread or task."""
    auto_extend: bool
    max_hold: float
    on_lost: Callable[[Loss], object] | None


DAY = 86_400.0
NOTE_BYTES_MAX = 1024
PERMITS_MAX = 65_535
TTL_DEFAULT = 10.0
MAX_HOLD_DEFAULT = 3_600.0

_NAMES = frozenset({"ttl", "note", "holder", "auto_extend", "max_hold", "on_lost", "wait"})

_HOLDER = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")


def checked_time(name: str, value: object, least: float, most: float) -> float:
    """``value`` as seconds, if it is within these bounds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not least <= float(seconds) <= most:  # type: ignore[arg-type]
        raise BadArgument(f"{name} must be a number of seconds from {least:g} to {most:g}, or a timedelta, not {value!r}")
    return float(seconds)  # type: ignore[arg-type]


def checked_ttl(ttl: object) -> float:
    """A lease that the server may accept."""
    return checked_time("ttl", ttl, 0.001, DAY)


def checked_limit(limit: object) -> int:
    """A number of permits."""
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= PERMITS_MAX:
        return limit
    raise BadArgument(f"limit must be an integer from 1 to {PERMITS_MAX}, not {limit!r}")


def checked_key(key: object) -> bytes:
    """The bytes of a key."""
    return _bytes_of("key", key)


def checked_text(name: str, text: object, most: int) -> bytes:
    """The bytes of ``text``, of which there are at most ``most``."""
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
    """``options``, checked."""
    for name in options:
        if name not in _NAMES:
            raise BadArgument(f"there is no option {name!r}: {', '.join(sorted(_NAMES))}")
    auto_extend, on_lost = options.get("auto_extend", True), options.get("on_lost")
    if not isinstance(auto_extend, bool):
        raise BadArgument(f"auto_extend must be True or False, not {auto_extend!r}")
    if on_lost is not None and not callable(on_lost):
        raise BadArgument("on_lost must be a function")
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
    )
