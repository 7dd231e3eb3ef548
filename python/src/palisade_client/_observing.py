"""Observation of leaders."""

from __future__ import annotations

import asyncio
import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._connection import Connection, Word
from ._connections import Connections
from ._leading import Leader, read_note
from ._refusals import is_lasting
from ._replies import Reply, text_of, to_fields, to_integer
from .errors import Closed, Guarded, PalisadeError, naming

# Milliseconds after which the server answers even without a change. A connection without that answer is closed a little
# later.
_WATCH_MS = 3_000
_ANSWER_WITHIN = 6.0

# Pause before a server that is unreachable or guarded is asked again.
_AGAIN = 0.3


@dataclass(frozen=True)
class _State:
    """The state of an election's lock: its grant, and the proclamation."""

    token: int
    sequence: int
    leader: Leader | None


class _Nothing:
    """The state before the first report."""


async def leader_now(connections: Connections, key: bytes) -> Leader | None:
    """Returns the present leader."""
    with naming(key):
        state = _to_state(await connections.ask(["LOCK.INFO", key]))
        await _throw_if_forgetful(connections, state)
    return state.leader


class Watch:
    """Reports each change of the leader. One task uses it at a time; ``end`` can be called meanwhile."""

    def __init__(self, connections: Connections, key: bytes) -> None:
        self._connections = connections
        self._key = key
        self._pid = os.getpid()
        self._known: _State | None = None
        self._told: Leader | type[_Nothing] | None = _Nothing
        self._ended: asyncio.Future[None] = connections.loop.create_future()
        self._link = _Link(connections)
        self._finalizer = weakref.finalize(self, _drop, self._link)
        self._finalizer.atexit = False

    async def next(self) -> Leader | None:
        """Returns the next change. Raises ``Closed`` when this, or the connections, are closed."""
        if self._pid != os.getpid():
            raise Closed()
        while True:
            try:
                state = await self._look()
                if state is None:
                    continue
                await _throw_if_forgetful(self._connections, state)
                self._known = state
                if _is_news(state.leader, self._told):
                    self._told = state.leader
                    return state.leader
            except PalisadeError as error:
                self._forget()
                # A lasting error is raised.
                if is_lasting(error):
                    raise error._of(self._key) from error.__cause__
                await self._pause()
            except BaseException:
                self._forget()
                raise

    async def end(self) -> None:
        """Ends the watch. May be called again. Does nothing in a forked process, since it belongs to the parent."""
        if self._pid != os.getpid():
            return
        if not self._ended.done():
            self._ended.set_result(None)
        self._forget()

    async def _look(self) -> _State | None:
        """Returns the state if it differs from the known one; ``None`` if nothing happened."""
        if self._ended.done() or self._connections.is_closing:
            raise Closed()
        if self._link.connection is None:
            self._link.connection = await self._connections.for_wait()
        # Without a known state, LOCK.INFO reports the present one; LOCK.WATCH would not report a free lock.
        words: list[Word] = ["LOCK.INFO", self._key]
        if self._known is not None:
            words = ["LOCK.WATCH", self._key, _WATCH_MS]
            if self._known.token > 0:
                words += ["TOKEN", self._known.token, "SEQ", self._known.sequence]
        answering = asyncio.ensure_future(self._link.connection.send(words, _ANSWER_WITHIN))
        try:
            endings: list[asyncio.Future[Any]] = [answering, self._ended, self._connections.closing]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise Closed()
            reply = answering.result()
        finally:
            answering.cancel()
        # Null means for LOCK.INFO that the lock is free, for LOCK.WATCH that nothing happened.
        return None if reply is None and self._known is not None else _to_state(reply)

    async def _pause(self) -> None:
        await asyncio.wait({self._ended, self._connections.closing}, timeout=_AGAIN, return_when=asyncio.FIRST_COMPLETED)

    def _forget(self) -> None:
        self._known = None
        self._link.end()


class _Link:
    """The connection that the watch holds."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.connection: Connection | None = None
        self.pid = os.getpid()

    def end(self) -> None:
        if self.connection is not None:
            self.connections.destroy(self.connection)
            self.connection = None


def _drop(link: _Link) -> None:
    # Called wherever the garbage collector runs, if the iteration was abandoned.
    if link.pid != os.getpid():
        return
    # A closed event loop has ended it.
    with suppress(RuntimeError):
        link.connections.loop.call_soon_threadsafe(link.end)


def _to_state(reply: Reply) -> _State:
    fields = to_fields(reply)
    token = to_integer(fields.get(b"token")) if fields else 0
    if not fields or token == 0:
        return _State(0, 0, None)
    sequence = to_integer(fields.get(b"seq"))
    # A holder without a proclamation is about to proclaim, or is no candidate.
    return _State(token, sequence, read_note(text_of(fields, b"note"), sequence) if sequence > 0 else None)


def _is_news(leader: Leader | None, told: Leader | type[_Nothing] | None) -> bool:
    if leader is None or not isinstance(told, Leader):
        return leader is not told
    return (leader.term, leader.sequence) > (told.term, told.sequence)


async def _throw_if_forgetful(connections: Connections, state: _State) -> None:
    """Raises ``Guarded`` if the server has forgotten its grants, and so cannot report that nobody leads."""
    if state.token > 0:
        return
    fields = to_fields(await connections.ask(["LOCK.NODE"])) or {}
    guard_ms = fields.get(b"guard_ms")
    if guard_ms is not None and to_integer(guard_ms) > 0:
        raise Guarded("the server is guarded: it may have forgotten who leads", to_integer(guard_ms) / 1000)
