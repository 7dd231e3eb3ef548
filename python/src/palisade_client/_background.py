"""The thread that waits for, extends and releases the locks of programs without an event loop."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import selectors
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from .errors import Closed

T = TypeVar("T")

# Maximum delay of the end of a program, in seconds.
_END_WITHIN = 1.0


class Background:
    """One event loop on a thread that does not keep the program alive, shared by the whole process."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        # Set at the end of the program: daemons that still wait are no longer woken, and end with the process.
        self.is_ended = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="palisade", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
        """Returns the result of ``work``.

        ``KeyboardInterrupt``, and any other exception of a signal, ends the wait for ``work``, which then is cancelled,
        or undone if it has just finished. Without ``undo``, ``work`` goes on.
        """
        call = _Call(self, work)
        try:
            self._begin(call)
            call.done.wait()
            return call.result()
        except BaseException:
            if undo is not None:
                self.loop.call_soon_threadsafe(call.abandon, undo)
            raise

    def _begin(self, call: _Call[Any]) -> None:
        try:
            self.loop.call_soon_threadsafe(call.start)
        except RuntimeError:
            if not threading.current_thread().daemon:
                raise Closed() from None

    def end(self) -> None:
        """Ends the loop at the end of the program. Leases run out by themselves."""
        self.is_ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_WITHIN)
        if self._thread.is_alive():
            return
        # A task started by a cancelled one is cancelled in the next round.
        for _ in range(3):
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_END_WITHIN))
        # A connection that was closed in the last round ends in the next one.
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def forsake(self) -> None:
        """Gives up the loop in a forked process.

        The thread does not exist there, and the kernel's part of the event loop is the parent's.
        """
        self._selector.close()


class _Call(Generic[T]):
    """A call from a thread into the event loop."""

    def __init__(self, background: Background, work: Callable[[], Awaitable[T]]) -> None:
        self.done = threading.Event()
        self._is_daemons = threading.current_thread().daemon
        self._background = background
        self._loop = background.loop
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(_awaited(self._work))
        self._task.add_done_callback(self._tell)

    def _tell(self, _: object) -> None:
        if not (self._is_daemons and self._background.is_ended):
            self.done.set()

    def result(self) -> T:
        return cast("asyncio.Task[T]", self._task).result()

    def abandon(self, undo: Callable[[T], Awaitable[object]]) -> None:
        task = self._task
        if task is None:
            return
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            self._undoing = self._loop.create_task(_awaited(lambda: undo(task.result())))


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


_background: Background | None = None
# The lock is re-entrant, since a signal handler may need it at any moment.
_lock = threading.RLock()
# Objects from before a fork are never touched: the parent uses them. Closing a connection would affect the other side.
_forsaken: list[object] = []


def background() -> Background:
    """Returns the event loop of this process."""
    global _background
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def forsake(left: object) -> None:
    """Keeps ``left``, an object of the process that this one was forked from, as it is."""
    _forsaken.append(left)


def _after_fork() -> None:
    global _background, _lock
    _lock = threading.RLock()
    if sys.implementation.name == "cpython":
        # The reference keeps it also at the end of this process, which collects everything else.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_forsaken))
    if _background is not None:
        _forsaken.append(_background)
        _background.forsake()
        _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    if _background is not None:
        _background.end()


# Handlers run in reverse order of registration: this one runs after those of programs that use locks.
atexit.register(_at_exit)
