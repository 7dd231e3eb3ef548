"""Every error of this package. A cancelled task and a ``KeyboardInterrupt`` stay what they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .loss import Loss

if TYPE_CHECKING:
    from typing_extensions import Self

# Of a key, so many characters are shown.
_SHOWN_CHARS = 100


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as the server tells."""

    note: str
    """What the holder left for people; empty if nothing."""
    token: int
    """The fencing token of its grant."""
    held_for: float
    """For how many seconds it has held the lock."""
    lease_left: float
    """For how many seconds its lease still runs, if it is not extended."""


def shown(key: bytes) -> str:
    """Returns a key as people read it: text where it is text, and nothing that moves a cursor."""
    text = key.decode(errors="replace")
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


class PalisadeError(Exception):
    """The base of every error of this package. All of them can be pickled, and so pass from one process to another."""

    key: bytes | None = None
    """The lock that this is about; ``None``: no lock in particular."""

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.key is None else f"{shown(self.key)}: {message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)

    def _of(self, key: bytes) -> Self:
        """Returns a copy that names this lock. Other callers may have been told the same error, of other locks."""
        named = copy.copy(self)
        named.key = key
        return named.with_traceback(self.__traceback__)


def _again(kind: type[PalisadeError], args: tuple[Any, ...], state: dict[str, Any]) -> PalisadeError:
    """Restores an error, whatever its class is made of."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


@contextmanager
def naming(key: bytes) -> Iterator[None]:
    """Names this lock in the errors of the block."""
    try:
        yield
    except PalisadeError as error:
        if error.key is not None:
            raise
        raise error._of(key) from error.__cause__


class BadArgument(PalisadeError, ValueError):
    """An argument is out of its bounds. Nothing was sent."""


class NotAcquired(PalisadeError):
    """The lock was not taken, since somebody else has it.

    It is no ``TimeoutError``: that one is an ``OSError``, and a lock that is held is no fault of the system.
    """

    def __init__(self, message: str, reason: Literal["held", "timed-out", "too-late"], holder: Holder | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """``held``: it was not free, and was not to be waited for. ``timed-out``: not in time. ``too-late``: granted, and heard of
        when nothing was left of the lease."""
        self.holder = holder
        """Who holds it, where the server could tell. Of several the one who has held it longest."""


class LockLost(PalisadeError):
    """The lock was held, and is not any more: stop what it protects."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"the lock is lost: {loss.message}")
        self.loss = loss
        """Why."""


class Guarded(PalisadeError):
    """The server may have forgotten grants, and grants nothing until they have ended: docs/guard.md."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """After so many seconds it is worth to ask again."""


class NoQuorum(PalisadeError):
    """From a ``palisade agent``: too few nodes can be asked. The message says why, node by node."""


class Unavailable(PalisadeError):
    """The server cannot be reached, or did not answer in time. Whether it did what it was asked is not known."""

    def __init__(self, message: str, *, is_broken: bool = False) -> None:
        super().__init__(message)
        self.is_broken = is_broken
        """Whether there is no connection, or it ended before the answer came. Else it is there, and there was no answer in time."""


class Misconfigured(PalisadeError):
    """Somebody has to do something about it: no module on the server, no password, no permission. The message says what."""


class ServerError(PalisadeError):
    """What the server says otherwise: docs/errors.md."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
        """Its first word, which is stable."""


class UnexpectedReply(PalisadeError):
    """The server's answer is not one that this command has. It is refused rather than guessed at."""


class Closed(PalisadeError):
    """The ``Palisade`` was closed."""

    def __init__(self) -> None:
        super().__init__("this Palisade was closed: make another one")
