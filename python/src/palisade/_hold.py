"""What is done with a held lock: re-entry, release, leaving. Both faces do it through this."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref

from ._connection import Word
from ._held import Held
from ._refusals import is_lasting
from .errors import Closed, LockLost, PalisadeError, UnexpectedReply, naming, shown
from .loss import Loss, LossReason, Released

_log = logging.getLogger("palisade")


class Hold:
    """One hold of an acquisition, of which there are several where it was re-entered. It is given back once.

    Coroutines of it run in the event loop of its connections, also where threads use it.
    """

    def __init__(self, held: Held) -> None:
        self.held = held
        self.is_released = False
        self._releasing: asyncio.Task[Released] | None = None
        self._finalizer = weakref.finalize(self, _drop, held)
        self._finalizer.atexit = False

    @property
    def valid_for(self) -> float:
        """For how many seconds it may be relied on."""
        return 0.0 if self.is_released else self.held.valid_for

    @property
    def is_over(self) -> bool:
        """Whether its validity has ended, and nobody was told yet."""
        return not (self.is_released or self.held.is_ended or self.held.is_elsewhere) and self.held.valid_for == 0

    async def settle(self) -> None:
        """Whoever relies on it is told if it is over."""
        self.held.lose_if_over()

    @property
    def key(self) -> bytes:
        """The key that is locked."""
        return self.held.acquisition.key

    def throw_if_released(self) -> None:
        """Fails if it was given back, or is lost."""
        with naming(self.key):
            self.held.throw_if_lost()
            if self.is_released:
                raise LockLost(Loss.of(LossReason.RELEASED))

    async def check(self) -> None:
        """As ``throw_if_released``."""
        self.throw_if_released()

    async def extend(self, ttl: object = None) -> None:
        """A lease of ``ttl`` from now on, or of the ttl of the lock."""
        self.throw_if_released()
        with naming(self.key):
            await self.held.extend(ttl)

    async def reenter(self) -> Hold:
        """One hold more."""
        self.throw_if_released()
        held = self.held
        held.holds += 1
        inner = Hold(held)
        try:
            words: list[Word] = ["LOCK.REENTER", self.key, held.acquisition.owner, "LEVEL", held.holds]
            with naming(self.key):
                held.answered(await held.connections.ask(words))
        except BaseException:
            inner._begin_release()
            raise
        return inner

    async def release(self) -> Released:
        """Gives it back, and tells what that came to. Cancelling this does not cancel that."""
        if self.held.is_elsewhere:
            return Released.NOT_HELD
        releasing = self._begin_release()
        await asyncio.wait({releasing})
        with naming(self.key):
            return releasing.result()

    async def release_unless_lost(self) -> None:
        """Releases, and fails if the lock was lost. Nothing else is a reason to, since it was valid until now: the log has it."""
        if self.is_released:
            return
        try:
            released = await self.release()
        except PalisadeError as error:
            _log.warning("%s (the work under the lock was done)", error)
            return
        if released is Released.NOT_HELD:
            raise LockLost(self.held.loss or Loss.of(LossReason.TAKEN_AWAY))._of(self.key)

    async def release_quietly(self) -> None:
        """Releases, where there is another error already to tell of."""
        with contextlib.suppress(PalisadeError):
            await self.release()

    async def leave(self) -> None:
        """Leaves the lock as it is until its lease ends."""
        self.is_released = True
        self._finalizer.detach()
        self.held.end()

    async def discard(self) -> None:
        """Gives it back in the background: nobody has heard of it."""
        self._begin_release()

    def _begin_release(self) -> asyncio.Task[Released]:
        if self._releasing is None:
            was_left, self.is_released = self.is_released, True
            self._finalizer.detach()
            self._releasing = self.held.connections.in_background(_left() if was_left else _release(self.held))
        return self._releasing


async def _left() -> Released:
    return Released.FREED


async def _release(held: Held) -> Released:
    connections, acquisition = held.connections, held.acquisition
    was_valid = held.valid_for > 0
    level = held.holds
    held.holds -= 1
    is_last = level == 1
    if is_last and not was_valid:
        # Its loss is told, if no timer has run yet; it may still be held on the server.
        held.lose_if_over()
        connections.give_back(acquisition)
        return Released.NOT_HELD
    if is_last:
        held.end()
    released = Released.UNKNOWN
    try:
        released = await connections.release(acquisition, level)
    except PalisadeError as error:
        if is_last and not isinstance(error, UnexpectedReply):
            connections.give_back(acquisition)
        if is_lasting(error) and not isinstance(error, Closed):
            raise
        _log.warning("%s: whether the lock was given back is not known: %s", shown(acquisition.key), error)
    return released if was_valid else Released.NOT_HELD


def _drop(held: Held) -> None:
    # Called wherever the garbage collector runs.
    if held.is_ended or held.is_elsewhere:
        return
    # An event loop that is closed extends nothing either.
    with contextlib.suppress(RuntimeError):
        held.connections.loop.call_soon_threadsafe(held.drop)
