"""A held acquisition of a lock, and its extensions."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

from ._acquiring import Grant
from ._clock import milliseconds, now, valid_until
from ._connection import Word
from ._connections import Acquisition, Connections
from ._replies import Reply, to_integer
from ._watching import watch
from .errors import LockLost, PalisadeError, Unavailable, shown
from .listening import Listening
from .loss import Loss, LossReason
from .options import Checked, checked_ttl

# Maximum time to answer an extension; never more than a third of the ttl.
_EXTEND_WITHIN = 1.0

# Bounds of the pause after a failed extension, which is a part of the ttl.
_AGAIN_LEAST = 0.02
_AGAIN_MOST = 1.0

# A loss is reported a little before the validity ends, so that the lock is still valid then: a part of the ttl, at most
# this.
_AHEAD_PART = 0.01
_AHEAD_MOST = 0.005


class Held:
    """The state that all locks of one acquisition share; after a re-entry there are several.

    One timer extends the acquisition, and ends it in time. Everything but reads happens in the event loop of the
    connections. The state does not refer to the locks, so that the collection of a lock is noticed (``drop``).
    """

    def __init__(
        self,
        connections: Connections,
        acquisition: Acquisition,
        mode: Sequence[Word],
        grant: Grant,
        keeping: Checked,
        on_end: Callable[[Held], object],
        listening: Listening,
    ) -> None:
        self.connections = connections
        self.acquisition = acquisition
        self.mode = mode
        self.number = grant.granted.number
        self.token = grant.granted.token
        self.holds = 1
        self._pid = os.getpid()
        self._valid_until = grant.valid_until
        self._keeping = keeping
        self._since = now()
        self._loss: Loss | None = None
        self._is_ended = False
        self._listeners: list[Callable[[], object]] = []
        self._on_end = on_end
        self._listening = listening
        self._ahead = min(keeping.ttl * _AHEAD_PART, _AHEAD_MOST)
        self._is_extending = False
        self._last_failure: PalisadeError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._extend_at = self._when_to_extend()
        self._schedule()
        self._watching = connections.in_background(watch(connections, acquisition.key, lambda: self.token, self._begin_to_extend))

    @property
    def is_elsewhere(self) -> bool:
        """True if the lock belongs to another process, from which this one was forked."""
        return self._pid != os.getpid()

    @property
    def is_ended(self) -> bool:
        """True if the lock was lost or released."""
        return self._is_ended

    @property
    def loss(self) -> Loss | None:
        """The reason of the loss, if the lock is lost."""
        return Loss.of(LossReason.FORKED) if self.is_elsewhere else self._loss

    @property
    def valid_for(self) -> float:
        """Seconds for which the lock may be relied on. The clock alone decides, not whether a timer has run."""
        if self._is_ended or self.is_elsewhere:
            return 0.0
        return max(0.0, self._valid_until - self._ahead - now())

    @property
    def held_for(self) -> float:
        """Seconds since the grant."""
        return now() - self._since

    @property
    def is_one_of_several(self) -> bool:
        """True of a permit, unless there is one only: that is an exclusive lock."""
        return self.mode[0:1] == ("LIMIT",) and self.mode[1] != 1

    def check_soon(self) -> None:
        """Asks the server whether the lock is still held. Any thread may call this."""
        # A closed event loop asks nothing.
        with suppress(RuntimeError):
            self.connections.loop.call_soon_threadsafe(self._begin_to_extend)

    def listen(self, listener: Callable[[], object]) -> None:
        """Calls ``listener`` in the event loop when the lock is lost or released; at once if it already is."""
        if self._is_ended:
            listener()
        else:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], object]) -> None:
        """Stops calling ``listener``."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def extend(self, ttl: object = None) -> None:
        """Requests a lease of ``ttl`` from now."""
        seconds = self._keeping.ttl if ttl is None else checked_ttl(ttl)
        self.throw_if_lost()
        try:
            await self._ask_to_extend(seconds, None)
        except Unavailable as error:
            raise Unavailable(
                f"the lock was not extended, and stays valid for {self.valid_for:.3f} s: {error}", is_broken=error.is_broken
            ) from error
        self._schedule()

    def end(self) -> None:
        """Ends the extensions, without reporting a loss."""
        if not self._is_ended:
            self._end()
            if not self.is_elsewhere:
                self._listening.report(lambda listener, kind: listener.released(kind, self.held_for))

    def _end(self) -> None:
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(self)
        # Nobody waits in an event loop that has ended.
        if not self.connections.loop.is_closed():
            if not self.is_elsewhere:
                self._watching.cancel()
            for listener in self._listeners:
                listener()
        self._listeners.clear()

    def lose(self, reason: LossReason, more: str | None = None) -> None:
        """Marks the lock as lost, and notifies those who rely on it."""
        if self._is_ended:
            return
        self._loss = loss = Loss.of(reason, more)
        self._end()
        self._listening.report(lambda listener, kind: listener.lost(kind, self.held_for, loss))
        if self._keeping.on_lost is not None:
            try:
                self._keeping.on_lost(loss)
            except Exception as error:
                warnings.warn(f"on_lost of the lock {shown(self.acquisition.key)} failed: {error!r}", RuntimeWarning, stacklevel=1)

    def drop(self) -> None:
        """Handles a lock that was collected without being released. After the last one the lease runs out."""
        if self._is_ended:
            return
        self.holds -= 1
        if self.holds == 0:
            self.lose(LossReason.NOT_EXTENDED)
            message = f"the lock {shown(self.acquisition.key)} was not released, and nothing refers to it: its lease runs out"
            warnings.warn(message, ResourceWarning, stacklevel=1)

    def lose_if_over(self) -> None:
        """Marks the lock as lost if its lease is over, even if no timer has run yet."""
        if not self._is_ended and self.valid_for == 0:
            self._lease_is_over()

    def throw_if_lost(self) -> None:
        """Raises ``LockLost`` if the lock is no longer valid."""
        if not self.is_elsewhere:
            self.lose_if_over()
        loss = self.loss
        if loss is not None:
            raise LockLost(loss)
        if self._is_ended:
            raise LockLost(Loss.of(LossReason.RELEASED))

    def answered(self, reply: Reply) -> int:
        """Returns the number in the answer to a holder's command. Null, or an answer that is too late, means a loss."""
        # An answer that arrives after the end of the lease does not revive a lock that was not valid meanwhile.
        self.throw_if_lost()
        if reply is None:
            self.lose(LossReason.TAKEN_AWAY)
            self.throw_if_lost()
        return to_integer(reply)

    async def _ask_to_extend(self, ttl: float, within: float | None) -> None:
        sent = now()
        words: list[Word] = ["LOCK.EXTEND", self.acquisition.key, self.acquisition.owner, milliseconds(ttl)]
        token = self.answered(await self.connections.ask(words, within))
        self.token = max(self.token, token)
        self._valid_until = max(self._valid_until, valid_until(sent, 0, ttl))
        self._extend_at = self._when_to_extend()
        self._last_failure = None

    def _begin_to_extend(self) -> None:
        if self.is_elsewhere or self._is_ended or self._is_extending:
            return
        self._is_extending = True
        # A lock that is not to be extended keeps its lease: this requests what is left of it, which also shows whether
        # it is held.
        ttl = self._keeping.ttl if self._may_extend else self.valid_for
        self.connections.in_background(self._extend_in_background(ttl))

    async def _extend_in_background(self, ttl: float) -> None:
        self._schedule()
        try:
            await self._ask_to_extend(ttl, max(0.001, min(_EXTEND_WITHIN, ttl / 3)))
            self._listening.report(lambda listener, kind: listener.extended(kind, True))
        except PalisadeError as error:
            if not self._is_ended:
                self._listening.report(lambda listener, kind: listener.extended(kind, False))
            self._last_failure = error
            self._extend_at = now() + min(max(ttl / 20, _AGAIN_LEAST), _AGAIN_MOST)
        finally:
            self._is_extending = False
            self._schedule()

    def _when_to_extend(self) -> float:
        """Returns when to extend the lease: two thirds of the ttl before its end, so a longer first lease later."""
        return self._valid_until - self._keeping.ttl * 2 / 3

    @property
    def _may_extend(self) -> bool:
        return self._keeping.auto_extend and self.held_for < self._keeping.max_hold

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_ended:
            return
        ends = self._valid_until - self._ahead
        is_due = self._may_extend and not self._is_extending
        self._wake_at = min(self._extend_at, ends) if is_due else ends
        self._timer = self.connections.loop.call_later(max(0.0, self._wake_at - now()), self._wake)

    def _wake(self) -> None:
        if self.is_elsewhere or self._is_ended:
            return
        if self.valid_for == 0:
            self._lease_is_over()
        elif now() >= self._extend_at and self._may_extend and not self._is_extending:
            self._begin_to_extend()
        else:
            self._schedule()

    def _lease_is_over(self) -> None:
        late = now() - self._wake_at
        if late > max(0.05, self._keeping.ttl / 3):
            self.lose(LossReason.ASLEEP)
        elif not self._keeping.auto_extend:
            self.lose(LossReason.NOT_EXTENDED)
        elif not self._may_extend:
            self.lose(LossReason.MAX_HOLD)
        else:
            self.lose(LossReason.NOT_EXTENDED_IN_TIME, None if self._last_failure is None else str(self._last_failure))
