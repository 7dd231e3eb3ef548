"""The ends of a lock: the outcomes of a release, and the reasons of a loss."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Released(str, Enum):
    """The outcome of a release, which is also a text: ``lock.release() == "freed"``. True if it is ``FREED``."""

    FREED = "freed"
    """The lock was held until then, and was released."""
    NOT_HELD = "not-held"
    """The lock was no longer held. The last steps may have been done without it."""
    UNKNOWN = "unknown"
    """No answer shows which of the two: the server, or too many of the nodes behind an agent, are away, or an answer
    was lost. The lock was valid until the release. It is released in the background, or ends with its lease."""

    def __bool__(self) -> bool:
        return self is Released.FREED

    def __str__(self) -> str:
        return self.value


class LossReason(str, Enum):
    """The reason why a lock is lost, which is also a text: ``loss.reason == "taken-away"``."""

    TAKEN_AWAY = "taken-away"
    """The server reports that this owner does not hold the lock: an operator broke it, its key was deleted, or the
    server lost its memory."""
    NOT_EXTENDED_IN_TIME = "not-extended-in-time"
    """The lease ended, because no extension was answered in time."""
    NOT_EXTENDED = "not-extended"
    """The lease ended without an extension: ``auto_extend`` is off, or nothing refers to the lock any longer."""
    MAX_HOLD = "max-hold"
    """The lease ended, and ``max_hold`` forbids extending it further."""
    ASLEEP = "asleep"
    """The lease ended while this program could not run: it was suspended, or its event loop was busy."""
    CLOSED = "closed"
    """The ``Palisade`` was closed, and released the lock."""
    RELEASED = "released"
    """This program released the lock, and then asked for something that only a holder can do."""
    FORKED = "forked"
    """The lock belongs to the process that acquired it, and this one is a child of that."""

    def __str__(self) -> str:
        return self.value


_MESSAGES = {
    LossReason.TAKEN_AWAY: "somebody took it away, or the server forgot it",
    LossReason.NOT_EXTENDED_IN_TIME: "its lease ended before an extension was answered",
    LossReason.NOT_EXTENDED: "its lease ended, and nobody extended it",
    LossReason.MAX_HOLD: "it was held for as long as is allowed (max_hold)",
    LossReason.ASLEEP: "its lease ended while this program could not run",
    LossReason.CLOSED: "its Palisade was closed, and gave it back",
    LossReason.RELEASED: "it was released",
    LossReason.FORKED: "it belongs to the process that took it, and this one was forked from that",
}


@dataclass(frozen=True)
class Loss:
    """The loss of a lock, for programs and for people."""

    reason: LossReason
    message: str

    @classmethod
    def of(cls, reason: LossReason, more: str | None = None) -> Loss:
        """Returns a loss, with the detail ``more``."""
        message = _MESSAGES[reason]
        return cls(reason, message if more is None else f"{message}: {more}")
