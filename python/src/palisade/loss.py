"""The ends of a lock: the outcomes of a release, and the reasons of a loss."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Released(str, Enum):
    """The outcomes of a release. Each is also a text: ``lock.release() == "freed"``. True if it is ``FREED``."""

    FREED = "freed"
    """The lock was held until then, and was given back."""
    NOT_HELD = "not-held"
    """The lock was not held any more: what was done last may have been done without it."""
    UNKNOWN = "unknown"
    """No answer tells: the server, or too many of the nodes behind an agent, are away, or an answer was lost. The lock was valid until
    the release; it is given back in the background, and ends with its lease otherwise."""

    def __bool__(self) -> bool:
        return self is Released.FREED

    def __str__(self) -> str:
        return self.value


class LossReason(str, Enum):
    """Why a lock is lost. Each is also a text: ``loss.reason == "taken-away"``."""

    TAKEN_AWAY = "taken-away"
    """The server says that this owner does not hold it: an operator broke it, its key was deleted, or the server lost its memory."""
    NOT_EXTENDED_IN_TIME = "not-extended-in-time"
    """Its lease ended, since no extension was answered in time."""
    NOT_EXTENDED = "not-extended"
    """Its lease ended, and nobody extended it (``auto_extend`` is off, or nothing refers to the lock any more)."""
    MAX_HOLD = "max-hold"
    """Its lease ended, and it is not extended for longer than ``max_hold``."""
    ASLEEP = "asleep"
    """Its lease ended while this program could not run: it was stopped, or its event loop was busy."""
    CLOSED = "closed"
    """Its ``Palisade`` was closed, and gave it back."""
    RELEASED = "released"
    """It was released by this program, which then asked for something that only a holder can do."""
    FORKED = "forked"
    """It belongs to the process that took it, and this one is a child of that."""

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
    """Why a lock is lost, for programs and for people."""

    reason: LossReason
    message: str

    @classmethod
    def of(cls, reason: LossReason, more: str | None = None) -> Loss:
        """A loss, with ``more`` that is known of it."""
        message = _MESSAGES[reason]
        return cls(reason, message if more is None else f"{message}: {more}")
