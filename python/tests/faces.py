"""One interface for both APIs of the package, threads and asyncio, so that each test is written
once. The API for threads runs on threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import palisade_client
from palisade_client import aio

_OBJECTS = (
    palisade_client.Palisade,
    palisade_client.Lock,
    palisade_client.Semaphore,
    palisade_client.Election,
    palisade_client.Observation,
    palisade_client.Job,
)


async def in_thread(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the result of ``work``, run on a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = work(*args, **kwargs)
        except BaseException as error:
            failure = error
        loop.call_soon_threadsafe(tell, result, failure)

    def tell(result: Any, failure: BaseException | None) -> None:
        if done.cancelled():
            return
        if failure is None:
            done.set_result(result)
        elif isinstance(failure, StopIteration):
            done.set_exception(StopAsyncIteration())
        else:
            done.set_exception(failure)

    threading.Thread(target=run, daemon=True).start()
    return await done


class Threaded:
    """An object of the API for threads, with the interface of the one for asyncio."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, "close" if name == "aclose" else name)
        if isinstance(value, palisade_client.Lost):
            return Threaded(value)
        if not inspect.ismethod(value) or name == "is_set":
            return value
        if name in ("semaphore", "election", "once"):
            return lambda *args, **kwargs: Threaded(value(*args, **kwargs))
        if name == "observe":
            return lambda: Watching(value)
        if name == "run":
            return lambda work: in_thread(value, lambda lock: asyncio.run(work(Threaded(lock))))
        return lambda *args, **kwargs: Entered(value, args, kwargs)

    def __bool__(self) -> bool:
        return bool(self.real)

    async def __aenter__(self) -> Any:
        await in_thread(self.real.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self.real.__exit__, *error)


class Entered:
    """A call whose result is awaited, or entered."""

    def __init__(self, work: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._call = (work, args, kwargs)
        self._result: Any = None

    async def _done(self) -> Any:
        work, args, kwargs = self._call
        result = await in_thread(work, *args, **kwargs)
        return Threaded(result) if isinstance(result, _OBJECTS) else result

    def __await__(self) -> Any:
        return self._done().__await__()

    async def __aenter__(self) -> Any:
        self._result = await self._done()
        return await self._result.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._result.__aexit__(*error)


class Watching:
    """An observation that begins at the first request."""

    def __init__(self, observe: Callable[[], Any]) -> None:
        self._observe = observe
        self._real: Any = None

    def __aiter__(self) -> Watching:
        return self

    async def __anext__(self) -> Any:
        if self._real is None:
            self._real = await in_thread(self._observe)
        return await in_thread(next, self._real)

    async def aclose(self) -> None:
        if self._real is not None:
            await in_thread(self._real.close)


def palisade_of(face: str, address: Any, **options: Any) -> Any:
    """Returns a client of the locks, with the interface of ``aio.Palisade``."""
    return aio.Palisade(address, **options) if face == "asyncio" else Threaded(palisade_client.Palisade(address, **options))
