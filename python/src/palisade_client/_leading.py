"""Election of a leader, and its proclamations."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from ._clock import now
from ._connection import Word
from ._held import Held
from ._hold import Hold
from ._locks import Asked, Locks
from ._refusals import is_lasting
from ._replies import INTEGERS_END
from .errors import LockLost, PalisadeError, naming
from .loss import LossReason
from .options import DAY, checked, checked_text

# Maximum length of a leader's value, in bytes: a note, less its term.
_VALUE_BYTES_MAX = 1002

# Pause in seconds before a leader proclaims again: nodes may be away for a moment.
_AGAIN = 0.1


@dataclass(frozen=True)
class Leader:
    """The leader, as an observer knows it."""

    term: int
    """The term: larger than that of every earlier leader."""
    sequence: int
    """The number of the proclamation within its term, from 1."""
    value: bytes
    """The proclaimed value, such as an address."""


def read_note(note: bytes, sequence: int) -> Leader | None:
    """Returns the proclamation in a note, as every client of an election writes it; ``None`` if it is another text."""
    match = re.match(rb"term ([1-9][0-9]{0,15}) ", note)
    if match is None or int(match[1]) >= INTEGERS_END:
        return None
    return Leader(int(match[1]), sequence, note[match.end() :])


class Leading:
    """A lock whose holder leads."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.term = hold.held.token
        # The number of the last proclamation.
        self.sequence = 0

    async def proclaim(self, hold: Hold, value: object) -> None:
        """Proclaims another value, while ``hold`` is not released."""
        hold.throw_if_released()
        with naming(hold.key):
            await self._proclaim(hold.held, checked_text("value", value, _VALUE_BYTES_MAX))

    async def _proclaim(self, held: Held, text: bytes) -> None:
        note = b"term %d %s" % (self.term, text)
        while True:
            self.sequence += 1
            sequence = self.sequence
            words: list[Word] = ["LOCK.NOTE", held.acquisition.key, held.acquisition.owner, note, "SEQ", sequence]
            current = held.answered(await held.connections.ask(words))
            if current == sequence:
                return
            # A later proclamation is already there, so the server ignored this one: the next one has a larger number.
            self.sequence = max(self.sequence, current)


async def _proclaim_first(leading: Leading, value: object, by: float | None) -> None:
    """Proclaims ``value``: again after an error that passes, until the lock is lost or the wait has ended at ``by``."""
    while True:
        try:
            return await leading.proclaim(leading.hold, value)
        except PalisadeError as error:
            if is_lasting(error) or (by is not None and now() >= by):
                raise
        await asyncio.sleep(_AGAIN)


async def campaign(locks: Locks, asked: Asked, value: object) -> Leading:
    """Waits in turn until this candidate leads, and proclaims ``value``."""
    with naming(asked.key):
        checked_text("value", value, _VALUE_BYTES_MAX)
        wait = checked(locks.defaults | asked.options).wait
    by = None if wait is None else now() + wait
    while True:
        left = None if by is None else min(max(0.0, by - now()), DAY)
        leading = Leading(await locks.lead(asked.but(wait=left)))
        try:
            await _proclaim_first(leading, value, by)
            return leading
        except LockLost as error:
            await leading.hold.release_quietly()
            # The candidate had won, but observers may not have seen it.
            if error.loss.reason is LossReason.CLOSED:
                raise
        except BaseException:
            await leading.hold.discard()
            raise
