"""Holder ids, by which `palisade deadlocks` finds holders that wait for each other; and lock names in errors."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import palisade_client
from conftest import Bench
from faces import in_thread
from palisade_client import Fenced, Guarded, Holder, LockLost, Loss, LossReason, NotAcquired, PalisadeError, ServerError, Unavailable, aio
from servers import PROGRAM, Node
from waiting import eventually, soon


def deadlocks(url: str) -> str:
    """Returns the output of the program, and its exit status."""
    words = [str(PROGRAM), "deadlocks", "--nodes", url]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"{done.returncode}: {done.stdout}"


async def two_in_a_circle(node: Node, worker: Callable[[str, str, asyncio.Event, asyncio.Event], Awaitable[None]]) -> None:
    """Lets two workers acquire two locks in different orders: the program finds them, and its advice helps."""
    a_is_held, b_is_held = asyncio.Event(), asyncio.Event()
    workers = [asyncio.ensure_future(worker("a", "b", a_is_held, b_is_held)), asyncio.ensure_future(worker("b", "a", b_is_held, a_is_held))]
    await eventually("both wait", lambda: node.outside.users("a") == node.outside.users("b") == (1, 1))
    said = await in_thread(deadlocks, node.url)
    name = rf"\S+ pid {os.getpid()}: \S+"
    assert re.match(rf"1: 2 wait for each other:\n  {name} holds [ab] .*\n  {name} holds [ab] ", said), said
    node.outside.say("LOCK.BREAK", "a")
    await soon(asyncio.gather(*workers, return_exceptions=True))


async def test_two_threads_that_wait_for_each_other_are_found() -> None:
    loop = asyncio.get_running_loop()

    def work(first: str, second: str, mine: asyncio.Event, others: asyncio.Event) -> None:
        with locks.lock(first):
            loop.call_soon_threadsafe(mine.set)
            asyncio.run_coroutine_threadsafe(others.wait(), loop).result()
            with locks.lock(second):
                pass

    with Node() as node:
        locks = palisade_client.Palisade(node.url)
        await two_in_a_circle(node, lambda *args: in_thread(work, *args))
        await in_thread(locks.close)


async def test_two_tasks_that_wait_for_each_other_are_found() -> None:
    with Node() as node:
        async with aio.Palisade(node.url) as locks:

            async def work(first: str, second: str, mine: asyncio.Event, others: asyncio.Event) -> None:
                # Earlier versions of Python run this in a task of its own.
                lock = await asyncio.wait_for(locks.lock(first), 60)
                async with lock:
                    mine.set()
                    await others.wait()
                    async with locks.lock(second):
                        pass

            await two_in_a_circle(node, work)


async def test_one_who_waits_for_what_another_one_has_is_in_no_deadlock(own: tuple[Node, Bench]) -> None:
    node, bench = own
    locks = bench.locks()
    held = await locks.lock("k")

    async def waits() -> None:
        async with locks.lock("k"):
            pass

    waiting = asyncio.gather(*(asyncio.ensure_future(waits()) for _ in range(3)))
    await node.outside.waiters("k", 3)
    assert await in_thread(deadlocks, node.url) == "0: no deadlock among 1 locks that are waited for\n"
    await held.release()
    await soon(waiting)


async def test_a_note_says_who_takes_the_lock(on_node: Bench, key: str) -> None:
    own, given, full = r"\[holder=[\w.-]*/\d+/[0-9a-f]{8}/\d+\]", "job:7/a@b", "n" * 1020
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, rf"\S+ pid {os.getpid()}: \S+ {own}", rf"\S+ pid {os.getpid()}: \S+"),
        ({"note": ""}, own, ""),
        ({"note": "invoices", "holder": given}, rf"invoices \[holder={given}\]", "invoices"),
        # There is no room for more.
        ({"note": full}, full, full),
    ]
    for options, noted, told in cases:
        async with on_node.locks().lock(key, **options):
            info = on_node.outside.info(key)
            assert info is not None
            assert re.fullmatch(noted, info["note"]), info["note"]
            with pytest.raises(NotAcquired) as refused:
                await on_node.locks().lock(key, wait=0)
            assert refused.value.holder is not None
            assert re.fullmatch(told, refused.value.holder.note)


def test_errors_pass_from_one_process_to_another() -> None:
    errors: list[PalisadeError] = [
        NotAcquired("it is held", "held", Holder("web-1", 7, 1.5, 2.5)),
        LockLost(Loss.of(LossReason.FORKED)),
        Guarded("GUARDED 60", 0.06),
        Fenced(33, 34),
        Unavailable("gone", is_broken=True),
        ServerError("OOM", "OOM"),
        palisade_client.Closed(),
        palisade_client.BadArgument("ttl"),
    ]
    for error in errors:
        named = error._of(b"orders:42\n")
        again = pickle.loads(pickle.dumps(named))
        assert (type(again), str(again), vars(again)) == (type(error), rf"orders:42\n: {error}", vars(named))
        assert error.key is None


async def test_errors_say_of_which_lock_they_are(on_node: Bench, key: str) -> None:
    lock = await on_node.locks().lock(key, auto_extend=False)
    on_node.outside.say("LOCK.BREAK", key)
    for ask in (lock.extend, lock.reenter):
        with pytest.raises(LockLost, match=f"^{key}: the lock is lost") as lost:
            await ask()
        assert lost.value.key == key.encode()
    # Several locks may share one failure; each error names its own lock.
    locks = on_node.locks("unix:///nowhere")
    errors = await asyncio.gather(*(locks.lock(f"{key}:{n}", wait=0) for n in range(3)), return_exceptions=True)
    for n, error in enumerate(errors):
        assert str(error).startswith(f"{key}:{n}: unix:///nowhere: "), error
