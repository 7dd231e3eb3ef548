"""The connections of a ``Palisade``, and its work in the background."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ._address import Address
from ._background import forsake
from ._clock import now
from ._connection import Answer, Connection, Word, reply_of
from ._refusals import passes_in
from ._replies import Reply, to_fields, to_granted
from .errors import Closed, Misconfigured, PalisadeError, ServerError, Unavailable
from .loss import Released

# Maximum number of idle connections kept for later waits.
_IDLE_MAX = 4

# Maximum number of watched locks: a program with thousands leaves the agent's connections to others.
_WATCHES_MAX = 32

# Time to wait for the answer to a cancelled wait; a lock that it grants is released.
_LATE_ANSWER = 1.0

# Maximum delay of the end of an event loop, in seconds.
_END_WITHIN = 1.0

# Maximum time, in seconds, for which the end of an event loop waits for the program's own tasks.
_OTHERS_END_WITHIN = 10.0

# The beginning of the names of this package's tasks.
_OWN_TASK = "palisade: "

# Pauses between attempts to release a lock; the last one repeats.
_AGAIN = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Acquisition:
    """An acquisition of a lock, as the server knows it. The ttl is in seconds."""

    key: bytes
    owner: str
    ttl: float


@dataclass(frozen=True)
class UnderWay:
    """A request that was sent, and whose answer nobody awaits any longer."""

    connection: Connection
    answer: asyncio.Future[Answer]


class Connections:
    """A shared connection for commands that are answered at once, and one for each command that waits.

    A waiting command blocks all others on its connection.
    """

    def __init__(self, address: Address, answer_within: float) -> None:
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.answer_within = answer_within
        self._shared: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._idle: list[Connection] = []
        self._waiting: set[Connection] = set()
        self._open: set[Connection] = set()
        # Held while a lock is watched.
        self.watches = asyncio.Semaphore(_WATCHES_MAX)
        self._is_agent: bool | None = None
        self._background: set[asyncio.Future[Any]] = set()
        # Done once ``close`` was called.
        self.closing: asyncio.Future[None] = self.loop.create_future()
        self._is_closed = False
        # The event loop does not refer to a connection without pending answers, so this set does until they are closed.
        # The task that closes the connections with the event loop, once there is one.
        self._until_loop_ends: list[asyncio.Task[None]] = []
        self._finalizer = weakref.finalize(self, _drop, self.loop, self._open, self._until_loop_ends, os.getpid())
        self._finalizer.atexit = False

    @property
    def is_closing(self) -> bool:
        """True if ``close`` was called."""
        return self.closing.done()

    def throw_if_closing(self) -> None:
        """Raises ``Closed`` once ``close`` was called."""
        if self.is_closing:
            raise Closed()

    async def unless_closing(self, future: asyncio.Future[Any], within: float | None = None) -> bool:
        """Returns whether ``future`` is done in time. If not, it is left alone, as it is if this call is cancelled.

        Raises ``Closed`` when ``close`` is called first.
        """
        await asyncio.wait({future, self.closing}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            self.throw_if_closing()
        return future.done()

    async def pause(self, seconds: float) -> None:
        """Waits for this many seconds, or raises ``Closed``."""
        await asyncio.wait({self.closing}, timeout=max(seconds, 0.001))
        self.throw_if_closing()

    async def shared(self, within: float | None = None) -> Connection:
        """Returns the shared connection, connected. Concurrent callers share one attempt, and its failure."""
        if self._shared is not None and self._shared.is_usable:
            self._notice_end_of_loop()
            return self._shared
        if self._opening is None:
            self._opening = self._opened()
            self._opening.add_done_callback(self._share)
        opening = self._opening
        done, _ = await asyncio.wait({opening}, timeout=within)
        if not done:
            raise Unavailable(f"{self.address} did not answer within {within:g} s")
        return opening.result()

    async def for_wait(self) -> Connection:
        """Returns a connection for a command that waits. ``idle`` or ``destroy`` takes it back."""
        connection = None
        while self._idle and (connection is None or not connection.is_usable):
            connection = self._idle.pop()
        if connection is None or not connection.is_usable:
            opening = self._opened()
            try:
                await self.unless_closing(opening)
            except BaseException:
                # A connection that opens only after the wait was cancelled is kept for others.
                opening.add_done_callback(self._keep)
                raise
            connection = opening.result()
        self._waiting.add(connection)
        return connection

    def idle(self, connection: Connection) -> None:
        """Marks ``connection`` as idle: nothing waits on it any longer."""
        self._waiting.discard(connection)
        if connection.is_usable and len(self._idle) < _IDLE_MAX and not self.is_closing:
            self._idle.append(connection)
        else:
            connection.destroy()

    def destroy_idle(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().destroy()

    def destroy(self, connection: Connection) -> None:
        """Closes a connection on which something may wait."""
        self._waiting.discard(connection)
        connection.destroy()

    async def ask(self, words: Sequence[Word], within: float | None = None) -> Reply:
        """Sends a repeatable command that is answered at once.

        It is sent again if its connection breaks, or the server is not ready yet.
        """
        return (await self._ask(words, within))[0]

    async def _ask(self, words: Sequence[Word], within: float | None = None) -> tuple[Reply, bool]:
        """Returns the answer, and whether the command was sent twice."""
        within = self.answer_within if within is None else within
        until = now() + within
        is_repeated = False
        while True:
            connection = await self.shared(max(0.001, until - now()))
            try:
                return await connection.send(words, within), is_repeated
            except PalisadeError as error:
                pause = passes_in(error)
                if pause is not None and now() + pause < until:
                    await asyncio.sleep(pause)
                elif isinstance(error, Unavailable) and error.is_broken and not is_repeated:
                    # The connection may have ended long ago: a new one is tried once. On a slow connection the command
                    # is not sent twice.
                    is_repeated = True
                else:
                    raise

    async def is_agent(self) -> bool:
        """Returns whether the server is an agent, asking once: an agent reports its number of nodes."""
        if self._is_agent is None:
            self._is_agent = b"nodes" in (to_fields(await self.ask(["LOCK.NODE"])) or {})
        return self._is_agent

    async def release(self, acquisition: Acquisition, level: int = 1) -> Released:
        """Releases holds down to below ``level``."""
        words: list[Word] = ["LOCK.RELEASE", acquisition.key, acquisition.owner, "LEVEL", level]
        try:
            reply, is_repeated = await self._ask(words)
        except ServerError as error:
            # The key has another value by now.
            if error.code == "WRONGTYPE":
                return Released.NOT_HELD
            raise
        if reply is not None:
            return Released.FREED
        # After a repetition, Null may mean that the first request released it.
        return Released.UNKNOWN if is_repeated else Released.NOT_HELD

    def give_back(self, acquisition: Acquisition, under_way: UnderWay | None = None) -> None:
        """Releases an acquisition in the background, whatever its state; tries until its lease has ended."""
        self.in_background(self._giving_back(acquisition, under_way))

    async def _giving_back(self, acquisition: Acquisition, under_way: UnderWay | None) -> None:
        await self._release_at_last(acquisition)
        if under_way is None:
            return
        # The request may reach the server only now, and be granted: only its answer tells.
        connection, answer = under_way.connection, under_way.answer
        await asyncio.wait({answer}, timeout=_LATE_ANSWER)
        is_free = False
        if answer.done():
            # An error says nothing about the lock.
            with suppress(PalisadeError):
                is_free = to_granted(reply_of(answer)) is None
        if connection in self._waiting:
            if answer.done():
                self.idle(connection)
            else:
                self.destroy(connection)
        if not is_free:
            await self._release_at_last(acquisition)

    async def _release_at_last(self, acquisition: Acquisition) -> None:
        until = now() + acquisition.ttl
        attempt = 0
        while True:
            try:
                await self.release(acquisition)
                return
            except PalisadeError as error:
                # A lock that cannot be released ends with its lease.
                if now() >= until or self.is_closing or isinstance(error, Misconfigured):
                    return
            await asyncio.sleep(_AGAIN[min(attempt, len(_AGAIN) - 1)])
            attempt += 1

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Does ``work`` even if its caller ends; ``close`` waits for it."""
        task = self.loop.create_task(work, name=f"{_OWN_TASK}background")
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Makes ``close`` wait for the block."""
        done: asyncio.Future[None] = self.loop.create_future()
        self._background.add(done)
        try:
            yield
        finally:
            self._background.discard(done)
            done.set_result(None)

    async def close(self, within: float | None = None) -> None:
        """Announces the end, waits for work in the background, and closes all connections.

        Cancels tasks that take longer than ``within`` seconds.
        """
        if not self.is_closing:
            self.closing.set_result(None)
        while self._background:
            _, late = await asyncio.wait(self._background, timeout=within)
            _cancel(work for work in late if isinstance(work, asyncio.Task))
        self._is_closed = True
        for connection in list(self._open):
            connection.destroy()
        if self._open:
            await asyncio.wait({connection.ended for connection in self._open})
        _cancel(self._until_loop_ends)

    def loop_goes_on(self) -> None:
        """Lets the next use begin the task anew that closes all connections at the end of the event loop."""
        self._until_loop_ends.clear()

    def _notice_end_of_loop(self) -> None:
        if not self._until_loop_ends:
            self._until_loop_ends.append(self.loop.create_task(_close_with_loop(weakref.ref(self)), name=f"{_OWN_TASK}end"))

    def _opened(self) -> asyncio.Task[Connection]:
        self._notice_end_of_loop()
        # Others may share it, so no single cancellation ends it.
        return self.in_background(self._opening_one())

    async def _opening_one(self) -> Connection:
        if self._is_closed:
            raise Closed()
        connection = await Connection.open(self.address, self.answer_within)
        known = self._open
        known.add(connection)
        # The callback does not refer to ``self``, which may be collected before the connection ends.
        connection.ended.add_done_callback(lambda _: known.discard(connection))
        return connection

    def _share(self, opening: asyncio.Future[Connection]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._shared = opening.result()

    def _keep(self, opening: asyncio.Future[Connection]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.idle(opening.result())

    def _done(self, task: asyncio.Future[Any]) -> None:
        self._background.discard(task)
        # A failure is raised to those who asked for the task, perhaps nobody.
        if not task.cancelled():
            task.exception()


async def _close_with_loop(connections: weakref.ref[Connections]) -> None:
    """Closes ``connections`` when their event loop ends.

    ``asyncio.run`` then cancels all tasks, and waits for these only. Without this task, those that release a lock
    whose acquisition was cancelled would stay pending.
    """
    end = _EndOfLoop()
    try:
        await end
    finally:
        ending = connections()
        if ending is not None and not ending.is_closing:
            if end.others is not None:
                # They may still release locks.
                if end.others:
                    await asyncio.wait(end.others, timeout=_OTHERS_END_WITHIN)
                await ending.close(_END_WITHIN)
            else:
                # A task of the program has cancelled all others, and may wait for them.
                ending.loop_goes_on()


class _EndOfLoop(asyncio.Future[None]):
    """Notices whether the loop ends when it is cancelled: ``asyncio.run`` cancels tasks while the loop does not run."""

    # The program's own tasks when the loop ended. A task that begins later may wait for the end of all these.
    others: set[asyncio.Task[Any]] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            tasks = asyncio.all_tasks(self.get_loop())
            self.others = {task for task in tasks if not task.get_name().startswith(_OWN_TASK)}
        return super().cancel(msg)


def _drop(loop: asyncio.AbstractEventLoop, known: set[Connection], tasks: list[asyncio.Task[None]], pid: int) -> None:
    """Closes the connections of a collected ``Palisade``. Called wherever the garbage collector runs."""
    if pid != os.getpid():
        forsake((known, tasks))
        return
    # A closed event loop has ended them.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_destroy, known, tasks)


def _destroy(known: set[Connection], tasks: list[asyncio.Task[None]]) -> None:
    _cancel(tasks)
    for connection in list(known):
        connection.destroy()


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
