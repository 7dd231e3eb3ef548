"""Tests wait for conditions, not for time to pass."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0


async def eventually(what: str, condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Waits until ``condition`` holds."""
    until = time.monotonic() + PATIENCE
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        assert time.monotonic() < until, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.005)


def boot_clock() -> float:
    """Returns the time of the clock that leases are counted on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def passed(seconds: float) -> None:
    """Waits until this many seconds have passed."""
    until = time.monotonic() + seconds
    await eventually(f"{seconds} s pass", lambda: time.monotonic() > until)


async def soon(work: Awaitable[T]) -> T:
    """Returns the result of ``work``, or fails if that takes too long."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=PATIENCE)
    assert task.done(), f"nothing came of it within {PATIENCE} s: {task}"
    return task.result()


def at_last(what: str, condition: Callable[[], bool]) -> None:
    """Waits until ``condition`` holds, where there is no event loop."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)
