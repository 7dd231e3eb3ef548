"""A cancelled wait leaves neither a lock nor a place in the queue behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import palisade_client
from conftest import Bench
from palisade_client import NoQuorum, NotAcquired, aio
from servers import Agent, Node
from waiting import at_last, soon


@pytest.fixture
def locks(server: Node | Agent) -> Iterator[palisade_client.Palisade]:
    with palisade_client.Palisade(server.url) as locks:
        yield locks


@pytest.fixture
async def in_loop(server: Node | Agent) -> Any:
    async with aio.Palisade(server.url) as locks:
        yield Bench(server, "asyncio"), locks


async def test_a_task_that_is_cancelled_leaves_the_queue(in_loop: tuple[Bench, aio.Palisade], key: str) -> None:
    bench, locks = in_loop
    async with locks.lock(key):
        waits = asyncio.ensure_future(locks.lock(key).__aenter__())
        await bench.outside.waiters(key, 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await bench.outside.waiters(key, 0)
    await bench.outside.free(key)


async def test_a_task_leaves_nothing_whenever_it_is_cancelled(in_loop: tuple[Bench, aio.Palisade], key: str) -> None:
    bench, locks = in_loop
    granted = given_up = inside = 0
    seed = int(os.environ.get("PALISADE_SEED") or time.time_ns() % 1_000_000)
    print(f"again: PALISADE_SEED={seed} pytest -k whenever_it_is_cancelled")
    draw = random.Random(seed)

    async def one() -> None:
        nonlocal granted, given_up, inside
        wait = draw.random() * 0.02 if draw.random() < 0.2 else None
        try:
            async with locks.lock(key, ttl=60, wait=wait):
                granted += 1
                inside += 1
                assert inside == 1
                try:
                    await asyncio.sleep(draw.choice([0, 0, 0.001]))
                finally:
                    inside -= 1
        except (NotAcquired, NoQuorum):
            # An agent can run out of time while it asks its nodes for another one.
            given_up += 1

    for _ in range(8):
        tasks = [asyncio.ensure_future(one()) for _ in range(16)]
        for task in tasks:
            # Cancellations come in every phase: before the start, on the way, in the queue, with the grant, under the
            # lock.
            if draw.random() < 0.7:
                asyncio.get_running_loop().call_later(draw.random() * 0.06, task.cancel)
            elif draw.random() < 0.3:
                task.cancel()
        results = await soon(asyncio.gather(*tasks, return_exceptions=True))
        given_up += sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results), results
        # Leases last a minute: none has run out.
        await bench.outside.free(key)
    assert granted
    assert given_up


async def test_a_task_that_is_cancelled_with_the_grant_leaves_nothing(in_loop: tuple[Bench, aio.Palisade], key: str) -> None:
    bench, locks = in_loop
    for n in range(12):
        lock = await locks.lock(key, ttl=60)

        async def take() -> None:
            async with locks.lock(key, ttl=60):
                pass

        waits = asyncio.ensure_future(take())
        await bench.outside.waiters(key, 1)
        released = asyncio.ensure_future(lock.release())
        for _ in range(n):
            await asyncio.sleep(0)
        waits.cancel()
        assert await released
        await asyncio.wait({waits})
        await bench.outside.free(key)


async def test_a_timeout_ends_a_wait(in_loop: tuple[Bench, aio.Palisade], key: str) -> None:
    bench, locks = in_loop

    async def take() -> None:
        async with locks.lock(key):
            raise AssertionError("it is held")

    async with locks.lock(key):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(take(), 0.2)
        await bench.outside.waiters(key, 0)


async def test_a_release_goes_on_when_it_is_cancelled(in_loop: tuple[Bench, aio.Palisade], key: str) -> None:
    bench, locks = in_loop
    for n in range(1, 5):
        lock = await locks.lock(key, ttl=60)
        releasing = asyncio.ensure_future(lock.release())
        for _ in range(n):
            await asyncio.sleep(0)
        releasing.cancel()
        await asyncio.wait({releasing})
        await bench.outside.free(key)


class Interrupted(BaseException):
    """The exception of a signal handler, like KeyboardInterrupt for SIGINT."""


@contextmanager
def interrupted(when: Callable[[], bool]) -> Iterator[None]:
    """Interrupts the main thread when ``when`` holds."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    def watch() -> None:
        at_last("it is time to interrupt", when)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            yield
            at_last("the interruption", lambda: False)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def free(server: Node | Agent, key: str) -> None:
    at_last(f"{key} is free", lambda: server.outside.users(key) == (0, 0))


def test_a_thread_that_is_interrupted_leaves_the_queue(server: Node | Agent, locks: palisade_client.Palisade, key: str) -> None:
    with locks.lock(key):
        with interrupted(lambda: server.outside.users(key)[1] == 1):
            locks.lock(key)
        at_last("nobody waits", lambda: server.outside.users(key)[1] == 0)
    free(server, key)


def test_a_thread_that_is_interrupted_with_the_grant_leaves_nothing(
    server: Node | Agent, locks: palisade_client.Palisade, key: str
) -> None:
    for _ in range(6):
        lock = locks.lock(key, ttl=60)

        def is_released(lock: palisade_client.Lock = lock) -> bool:
            if server.outside.users(key)[1] == 1:
                lock.release()
                return True
            return False

        with interrupted(is_released):
            taken = locks.lock(key, ttl=60)
            try:
                at_last("the interruption", lambda: False)
            finally:
                taken.release()
        free(server, key)


def test_a_lock_is_not_extended_if_the_program_is_interrupted_before_it_has_it(
    server: Node | Agent, locks: palisade_client.Palisade, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(palisade_client.Lock):
        def __init__(self, hold: Any) -> None:
            super().__init__(hold)
            assert server.outside.users(key)[0] == 1
            raise KeyboardInterrupt

    monkeypatch.setattr("palisade_client._sync.Lock", Late)
    with pytest.raises(KeyboardInterrupt):
        locks.lock(key, ttl=1)
    gc.collect()
    free(server, key)
