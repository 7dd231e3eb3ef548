"""The operations of a held lock, for threads and for asyncio: re-entry, release, leaving."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref

from ._connection import Word
from ._held import Held
from ._refusals import is_lasting
from .errors import BadArgument, Closed, LockLost, NotAcquired, PalisadeError, UnexpectedReply, naming, shown
from .loss import Loss, LossReason, Released

_log = logging.getLogger("palisade_client")


class Hold:
    """One hold of an acquisition, which has several after a re-entry. It is released once.

    Its coroutines run in the event loop of its connections, even if threads use it.
    """

    def __init__(self, held: Held) -> None:
        self.held = held
        self.is_released = False
        self._releasing: asyncio.Task[Released] | None = None
        self._finalizer = weakref.finalize(self, _drop, held)
        self._finalizer.atexit = False

    @property
    def valid_for(self) -> float:
        """Seconds for which the lock may be relied on."""
        return 0.0 if self.is_released else self.held.valid_for

    @property
    def is_over(self) -> bool:
        """True if the lock's validity has ended, and nobody was notified yet."""
        return not (self.is_released or self.held.is_ended or self.held.is_elsewhere) and self.held.valid_for == 0

    async def settle(self) -> None:
        """Notifies those who rely on the lock if its validity has ended."""
        self.held.lose_if_over()

    @property
    def key(self) -> bytes:
        """The key of the lock."""
        return self.held.acquisition.key

    def throw_if_released(self) -> None:
        """Raises ``LockLost`` if this hold was released, or the lock is lost."""
        with naming(self.key):
            self.held.throw_if_lost()
            if self.is_released:
                raise LockLost(Loss.of(LossReason.RELEASED))

    async def check(self) -> None:
        """Raises what ``throw_if_released`` raises, as a coroutine."""
        self.throw_if_released()

    async def extend(self, ttl: object = None) -> None:
        """Extends the lease from now to ``ttl``, or to the ttl of the lock."""
        self.throw_if_released()
        with naming(self.key):
            await self.held.extend(ttl)

    async def reenter(self) -> Hold:
        """Adds a hold."""
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

    async def downgrade(self) -> None:
        """Makes a writer a reader, which it is from the call on, whatever comes of the request."""
        self._check_convertible()
        self.held.mode = ("SHARED",)
        await self._convert("SHARED")

    async def upgrade(self) -> None:
        """Makes a reader a writer, if nobody reads beside it."""
        self._check_convertible()
        await self._convert("EXCLUSIVE")
        self.held.mode = ()

    def _check_convertible(self) -> None:
        self.throw_if_released()
        with naming(self.key):
            if self.held.number > 0:
                raise BadArgument("a permit has no readers and writers: release it, and acquire the lock")

    async def _convert(self, mode: str) -> None:
        held = self.held
        with naming(self.key):
            reply = await held.connections.ask(["LOCK.CONVERT", self.key, held.acquisition.owner, mode])
            if reply is None and mode == "EXCLUSIVE":
                # Null is also the answer if the lock is no longer held: an extension shows which of the two it is.
                await held.extend()
                raise NotAcquired("others hold the lock for reading too", "held")
            held.token = max(held.token, held.answered(reply))

    async def hand_over(self) -> tuple[str, int]:
        """Leaves the lock to another program, which adopts it by the owner and the token within a lease from now."""
        self.throw_if_released()
        held = self.held
        with naming(self.key):
            if held.mode:
                raise BadArgument("only an exclusive lock can be handed over")
        await self.extend()
        self.throw_if_released()
        await self.leave()
        return held.acquisition.owner, held.token

    async def release(self) -> Released:
        """Releases it, and returns the outcome. A cancellation of this call does not cancel the release."""
        if self.held.is_elsewhere:
            return Released.NOT_HELD
        releasing = self._begin_release()
        await asyncio.wait({releasing})
        with naming(self.key):
            return releasing.result()

    async def release_unless_lost(self) -> None:
        """Releases, and raises ``LockLost`` if the lock was lost.

        Any other failure is only logged, since the lock was valid until now.
        """
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
        """Releases the lock while another error is already being raised."""
        with contextlib.suppress(PalisadeError):
            await self.release()

    async def leave(self) -> None:
        """Leaves the lock to the end of its lease."""
        self.is_released = True
        self._finalizer.detach()
        self.held.end()

    async def discard(self) -> None:
        """Releases in the background a lock that nobody has received."""
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
        # The loss is reported even if no timer has run yet; the server may still hold the lock.
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
    # A closed event loop extends nothing either.
    with contextlib.suppress(RuntimeError):
        held.connections.loop.call_soon_threadsafe(held.drop)
