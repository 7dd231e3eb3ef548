"""What is done with a held lock: re-entry, release, leaving. Both faces do it through this."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from ._connection import Word
from ._held import Held
from .errors import Closed, LockLost, PalisadeError, Unavailable, UnexpectedReply
from .loss import Loss, LossReason


class Hold:
    """One hold of an acquisition, of which there are several where it was re-entered. It is given back once.

    Coroutines of it run in the event loop of its connections, also where threads use it.
    """

    def __init__(self, held: Held) -> None:
        self.held = held
        self.is_released = False
        self._releasing: asyncio.Task[bool] | None = None
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

    def throw_if_released(self) -> None:
        """Fails if it was given back, or is lost."""
        self.held.throw_if_lost()
        if self.is_released:
            raise LockLost(Loss.of(LossReason.RELEASED))

    async def check(self) -> None:
        """As ``throw_if_released``."""
        self.throw_if_released()

    async def extend(self, ttl: object = None) -> None:
        """A lease of ``ttl`` from now on, or of the ttl of the lock."""
        self.throw_if_released()
        await self.held.extend(ttl)

    async def reenter(self) -> Hold:
        """One hold more."""
        self.throw_if_released()
        held = self.held
        held.holds += 1
        inner = Hold(held)
        try:
            words: list[Word] = ["LOCK.REENTER", held.acquisition.key, held.acquisition.owner, "LEVEL", held.holds]
            held.answered(await held.connections.ask(words))
        except BaseException:
            inner._begin_release()
            raise
        return inner

    async def release(self) -> bool:
        """Gives it back, and tells whether it was held until then. Cancelling this does not cancel that."""
        if self.held.is_elsewhere:
            return False
        releasing = self._begin_release()
        await asyncio.wait({releasing})
        return releasing.result()

    async def release_unless_lost(self) -> None:
        """Releases, and fails if the lock was lost. A server that does not answer is no reason to: it was valid until now."""
        if self.is_released:
            return
        try:
            was_held = await self.release()
        except (Unavailable, Closed):
            return
        if not was_held:
            raise LockLost(self.held.loss or Loss.of(LossReason.TAKEN_AWAY))

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

    def _begin_release(self) -> asyncio.Task[bool]:
        if self._releasing is None:
            was_left, self.is_released = self.is_released, True
            self._finalizer.detach()
            self._releasing = self.held.connections.in_background(_left() if was_left else _release(self.held))
        return self._releasing


async def _left() -> bool:
    return True


async def _release(held: Held) -> bool:
    connections, acquisition = held.connections, held.acquisition
    was_valid = held.valid_for > 0
    held.holds -= 1
    if held.holds > 0:
        return await connections.release(acquisition, held.holds + 1) and was_valid
    if not was_valid:
        # Its loss is told, if no timer has run yet; it may still be held on the server.
        held.lose_if_over()
        connections.give_back(acquisition)
        return False
    held.end()
    try:
        return await connections.release(acquisition)
    except PalisadeError as error:
        if not isinstance(error, UnexpectedReply):
            connections.give_back(acquisition)
        raise


def _drop(held: Held) -> None:
    # Called wherever the garbage collector runs.
    if held.is_ended or held.is_elsewhere:
        return
    # An event loop that is closed extends nothing either.
    with contextlib.suppress(RuntimeError):
        held.connections.loop.call_soon_threadsafe(held.drop)
