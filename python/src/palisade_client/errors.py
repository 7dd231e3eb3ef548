"""The errors of this package. A cancelled task and a ``KeyboardInterrupt`` are raised unchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .loss import Loss

if TYPE_CHECKING:
    from typing_extensions import Self

# Maximum number of characters shown of a key.
_SHOWN_CHARS = 100


@dataclass(frozen=True)
class Holder:
    """The holder of a lock, as the server reports it."""

    note: str
    """The holder's note for people; empty if there is none."""
    token: int
    """The fencing token of its grant."""
    held_for: float
    """Time since the grant, in seconds."""
    lease_left: float
    """Remaining time of the lease in seconds, unless it is extended."""


def shown(key: bytes) -> str:
    """Returns a key as people read it: text if it is text, with nothing that moves a cursor."""
    text = key.decode(errors="replace")
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


class PalisadeError(Exception):
    """The base class of all errors of this package. All can be pickled, and so pass between processes."""

    key: bytes | None = None
    """The lock of this error; ``None`` if the error concerns no single lock."""

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.key is None else f"{shown(self.key)}: {message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)

    def _of(self, key: bytes) -> Self:
        """Returns a copy that names this lock. Other callers may share the same error for other locks."""
        named = copy.copy(self)
        named.key = key
        return named.with_traceback(self.__traceback__)


def _again(kind: type[PalisadeError], args: tuple[Any, ...], state: dict[str, Any]) -> PalisadeError:
    """Restores a pickled error of any class."""
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
    """An argument is out of bounds. Nothing was sent."""


class NotAcquired(PalisadeError):
    """The lock was not acquired, because another owner has it.

    It is no ``TimeoutError``: that one is an ``OSError``, and a held lock is no fault of the system.
    """

    def __init__(self, message: str, reason: Literal["held", "timed-out", "too-late"], holder: Holder | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """``held``: not free, and no wait was allowed. ``timed-out``: not free in time. ``too-late``: granted, but
        nothing of the lease was left."""
        self.holder = holder
        """The holder, if the server reported it; of several, the one that has held the lock longest."""


class LockLost(PalisadeError):
    """The lock was held, and no longer is: stop the work that it protects."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"the lock is lost: {loss.message}")
        self.loss = loss
        """The reason."""


class Fenced(PalisadeError):
    """The resource has seen a newer holder: the lock is lost, so stop the work that it protects. docs/fencing.md."""

    def __init__(self, token: int, seen: int) -> None:
        super().__init__(f"the token {token} is older than {seen}")
        self.token = token
        """The token that the command or request carried."""
        self.seen = seen
        """The largest token that the resource has seen."""


class Guarded(PalisadeError):
    """The server may have forgotten grants, and grants nothing until they have ended: docs/guard.md."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds until a retry makes sense."""


class NoQuorum(PalisadeError):
    """Too few nodes behind a ``palisade agent`` can answer. The message has each node's reason."""


class Unavailable(PalisadeError):
    """The server cannot be reached, or did not answer in time. It may have executed the command."""

    def __init__(self, message: str, *, is_broken: bool = False) -> None:
        super().__init__(message)
        self.is_broken = is_broken
        """True if the connection was missing or ended before the answer. Otherwise the answer was late."""


class Misconfigured(PalisadeError):
    """Somebody has to act: the server lacks the module, or the client lacks a password or a permission.

    The message says which.
    """


class ServerError(PalisadeError):
    """Any other error of the server: docs/errors.md."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
        """The first word of the error, which is stable."""


class UnexpectedReply(PalisadeError):
    """The server's answer has another form than this command's answers. It is refused rather than guessed at."""


class Closed(PalisadeError):
    """The ``Palisade`` was closed."""

    def __init__(self) -> None:
        super().__init__("this Palisade was closed: make another one")
