"""Acquires locks, also for permits and leaderships."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from ._clock import milliseconds, now, valid_until
from ._connection import Connection, Word, reply_of
from ._connections import Acquisition, Connections, UnderWay
from ._refusals import is_lasting, is_refusal, passes_in
from ._replies import Granted, to_granted, to_holder
from .errors import NoQuorum, NotAcquired, PalisadeError, Unavailable, shown
from .options import DAY

# A wait without a limit ends once the server has been unreachable for this many seconds.
_LOOKED_FOR = 10.0
_LOOK_AGAIN = 0.2
# A request that was pending for more than this many seconds before it failed shows that the server
# was reachable until then.
_STOOD = 1.0
# An acquisition ends after this many consecutive grants that came too late.
TOO_LATE_MAX = 10

_log = logging.getLogger("palisade_client")


@dataclass(frozen=True)
class Wanted:
    """The parameters of an acquisition. Times are in seconds."""

    acquisition: Acquisition
    mode: Sequence[Word]
    """The words of the command that name the mode."""
    note: bytes
    wait: float | None
    """Maximum wait; ``None`` for no limit."""
    tells_holder: bool
    """True if the error of a held lock names the holder."""


@dataclass(frozen=True)
class Grant:
    """A granted lock, and until when it may be relied on."""

    granted: Granted
    valid_until: float


async def acquire(connections: Connections, wanted: Wanted) -> Grant:
    """Acquires a lock, or raises the reason why it was not acquired.

    However this ends, also by a cancellation, it leaves neither a lock nor a place in the queue
    behind: both are cleaned up in the background.
    """
    connections.throw_if_closing()
    attempt = _Attempt(connections, wanted)
    with connections.attended():
        try:
            grant = await attempt.run()
            if grant.valid_until > now():
                return grant
            raise NotAcquired("the lock was granted, but nothing of its lease was left when this program heard of it", "too-late")
        except BaseException as error:
            attempt.give_back(error)
            raise


class _Attempt:
    def __init__(self, connections: Connections, wanted: Wanted) -> None:
        self._connections = connections
        self._wanted = wanted
        # The request whose answer has not arrived, or was not understood.
        self._under_way: UnderWay | None = None
        # True if a request has or had no answer: the server may still grant it, even if it refused a later one.
        self._is_unsure = False
        # The obstacle when the server was last asked.
        self._trouble: PalisadeError | None = None

    async def run(self) -> Grant:
        wait = self._wanted.wait
        by = inf if wait is None else now() + wait
        grant = await self._ask(by)
        if grant is not None:
            return grant
        if wait == 0:
            raise await self._not_acquired("held")
        return await self._wait(by)

    def give_back(self, error: BaseException) -> None:
        """Frees what the server may have granted or queued, unless it answered that there is nothing."""
        is_too_late = isinstance(error, NotAcquired) and error.reason == "too-late"
        if self._under_way is not None or self._is_unsure or is_too_late:
            self._connections.give_back(self._wanted.acquisition, self._under_way)

    async def _ask(self, by: float) -> Grant | None:
        """Asks without waiting, on the shared connection: most locks are free.

        Returns ``None`` if there is something to wait for: a holder, or a server or nodes behind it that are away.
        """
        is_repeated = False
        while True:
            connection: Connection | None = None
            try:
                connection = await self._connections.shared()
                return await self._send(connection, [], self._connections.answer_within)
            except PalisadeError as error:
                pause = passes_in(error)
                is_broken = isinstance(error, Unavailable) and error.is_broken
                if pause is not None and now() + pause < by:
                    await self._connections.pause(pause)
                elif connection is not None and is_broken and not is_repeated:
                    # The connection may have ended long ago: a new one is tried once.
                    is_repeated = True
                elif now() >= by or is_lasting(error):
                    raise
                else:
                    self._await_end_of(error, connection is not None)
                    return None

    def _await_end_of(self, trouble: PalisadeError, was_connected: bool) -> None:
        """Remembers ``trouble``, which is raised if nothing else happens before the end of the wait."""
        self._trouble = trouble
        if isinstance(trouble, Unavailable):
            # The server may be just as silent on the idle connections.
            self._connections.destroy_idle()
        if isinstance(trouble, NoQuorum) or not was_connected:
            key = shown(self._wanted.acquisition.key)
            _log.warning("%s: the lock cannot be asked for, and is waited for: %s", key, trouble)

    async def _wait(self, by: float) -> Grant:
        """Waits in the queue, on a connection of its own."""
        trouble_since: float | None = None
        connection: Connection | None = None
        while True:
            if now() >= by:
                raise self._trouble or await self._not_acquired("timed-out")
            if connection is not None:
                # The last request was given up: it leaves the queue before another one waits.
                self._connections.destroy(connection)
                connection = None
            asked = inf
            try:
                connection = await self._connections.for_wait()
                asked = now()
                grant = await self._stand_in_queue(connection, by)
                self._connections.idle(connection)
                connection = trouble_since = self._trouble = None
                if grant is not None and grant.valid_until - now() < self._wanted.acquisition.ttl / 2:
                    # After a long wait the clocks may have drifted apart, and this program may have
                    # slept. So the lock is requested again, since the new lease counts from now.
                    self._is_unsure = True
                    grant = await self._ask(by)
                if grant is not None:
                    return grant
            except PalisadeError as error:
                if connection is not None and not self._awaits_answer_on(connection):
                    self._connections.idle(connection)
                    connection = None
                pause = passes_in(error)
                if pause is None:
                    if self._ends_wait(error):
                        raise
                    if trouble_since is None or now() - asked > _STOOD:
                        trouble_since = now()
                    if by == inf and now() - trouble_since > _LOOKED_FOR:
                        raise
                    pause = _LOOK_AGAIN
                self._trouble = error
                await self._connections.pause(min(pause, by - now()))

    def _awaits_answer_on(self, connection: Connection) -> bool:
        sent = self._under_way
        return sent is not None and sent.connection is connection and not sent.answer.done()

    async def _stand_in_queue(self, connection: Connection, by: float) -> Grant | None:
        left = min(max(0.0, by - now()), DAY)
        # A server that has not answered by then hangs.
        return await self._send(connection, ["WAIT", ceil(left * 1000)], left + self._connections.answer_within)

    def _ends_wait(self, error: PalisadeError) -> bool:
        """Returns whether an error that answers a waiting request ends the wait at once."""
        # An agent waits for nodes itself: NOQUORUM before the end of the wait is final. But the agent searches only
        # once for a grant that this owner may already have: if there may be one, the wait goes on.
        return is_lasting(error) or (isinstance(error, NoQuorum) and not self._is_unsure)

    async def _send(self, connection: Connection, more: Sequence[Word], within: float) -> Grant | None:
        """Sends the request, which must be answered within ``within`` seconds."""
        acquisition, note = self._wanted.acquisition, self._wanted.note
        words: list[Word] = ["LOCK.ACQUIRE", acquisition.key, acquisition.owner, milliseconds(acquisition.ttl)]
        words += [*self._wanted.mode, *more, "RETRY"]
        if note:
            words += ["NOTE", note]
        self._connections.throw_if_closing()
        was_unsure, self._is_unsure = self._is_unsure, True
        # The lease is counted from before the request was sent.
        sent = now()
        answer = await connection.post(words)
        self._under_way = UnderWay(connection, answer)
        if not await self._connections.unless_closing(answer, within):
            # After its error the attempt stays unsure, also once a later request has replaced the one under way.
            await connection.give_up(answer, within)
        self._is_unsure = was_unsure
        try:
            granted = to_granted(reply_of(answer))
        except PalisadeError as error:
            if isinstance(error, Unavailable):
                self._is_unsure = True
                self._under_way = None
            elif is_refusal(error):
                self._under_way = None
            raise
        self._under_way = None
        if granted is None:
            return None
        return Grant(granted, valid_until(sent, granted.waited, acquisition.ttl))

    async def _not_acquired(self, reason: Literal["held", "timed-out"]) -> NotAcquired:
        said = "somebody else holds the lock" if reason == "held" else f"the lock was not free within {self._wanted.wait:g} s"
        if not self._wanted.tells_holder:
            return NotAcquired(said, reason)
        try:
            holder = to_holder(await self._connections.ask(["LOCK.INFO", self._wanted.acquisition.key]))
        except PalisadeError:
            holder = None
        if holder is not None:
            by = f" by {json.dumps(holder.note, ensure_ascii=False)}" if holder.note else ""
            said += f"; it has been held for {holder.held_for:g} s{by}"
        return NotAcquired(said, reason, holder)
