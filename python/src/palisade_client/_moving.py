"""Two locks for one resource, while programs move from an old lock to this one: docs/migrate.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from .errors import NotAcquired

Held = TypeVar("Held", bound=AbstractContextManager[Any])
AsyncHeld = TypeVar("AsyncHeld", bound=AbstractAsyncContextManager[Any])


class OldLock(Protocol):
    """A lock of redis-py, or one like it."""

    def acquire(self) -> bool:
        """Returns whether it was acquired."""
        ...

    def release(self) -> Any:
        """Releases it. Raises an error of its own if it was lost."""
        ...


class AsyncOldLock(Protocol):
    """A lock of ``redis.asyncio``, or one like it."""

    def acquire(self) -> Awaitable[bool]:
        """Returns whether it was acquired."""
        ...

    def release(self) -> Awaitable[Any]:
        """Releases it. Raises an error of its own if it was lost."""
        ...


def _not_acquired() -> NotAcquired:
    return NotAcquired("the old lock was not acquired", "timed-out")


class DualLock(Generic[Held]):
    """Both locks of a resource: ``with DualLock(old, lambda: locks.lock(key)) as lock``.

    In every program, the old lock is acquired first and released last. It is extended, or not, as its library does it.
    The new lock needs a name of its own if it is on the same server.
    """

    def __init__(self, old: OldLock, take: Callable[[], Held]) -> None:
        self._old = old
        self._take = take
        self._lock: Held | None = None

    def __enter__(self) -> Held:
        if not self._old.acquire():
            raise _not_acquired()
        try:
            self._lock = self._take()
        except BaseException:
            self._old.release()
            raise
        return self._lock

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Releases both. Raises ``LockLost`` or the old library's error if one was lost."""
        try:
            if self._lock is not None:
                self._lock.__exit__(kind, error, traceback)
        finally:
            self._old.release()


class AsyncDualLock(Generic[AsyncHeld]):
    __doc__ = "Both locks of a resource, as ``palisade_client.DualLock``: ``async with DualLock(old, lambda: locks.lock(key)) as lock``."

    def __init__(self, old: AsyncOldLock, take: Callable[[], Awaitable[AsyncHeld]]) -> None:
        self._old = old
        self._take = take
        self._lock: AsyncHeld | None = None

    async def __aenter__(self) -> AsyncHeld:
        if not await self._old.acquire():
            raise _not_acquired()
        try:
            self._lock = await self._take()
        except BaseException:
            await self._old.release()
            raise
        return self._lock

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if self._lock is not None:
                await self._lock.__aexit__(kind, error, traceback)
        finally:
            await self._old.release()
