"""Several locks at once, all or none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from faces import in_thread
from palisade_client import BadArgument, LockLost, Loss, NotAcquired, Palisade, aio
from servers import Node
from waiting import eventually, soon


def test_they_are_acquired_in_the_order_of_their_bytes(a_node: Node, key: str) -> None:
    a, b = f"{key}:a", f"{key}:b"
    with Palisade(a_node.url) as locks:
        with locks.lock_all([b, a, b.encode()]) as both:
            assert [lock.key for lock in both] == [a.encode(), b.encode()]
        with locks.lock(b):
            with pytest.raises(NotAcquired, match=f"^{b}: "), locks.lock_all([b, a], wait=0.05):
                pass
            assert a_node.outside.users(a) == (0, 0)
        threads = [threading.Thread(target=hold, args=(locks, keys)) for keys in ([a, b], [b, a]) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive(), "two wait for each other"
        with pytest.raises(BadArgument), locks.lock_all([]):
            pass


def hold(locks: Palisade, keys: list[str]) -> None:
    with locks.lock_all(keys):
        pass


async def test_the_loss_of_one_is_raised_and_the_others_are_released(a_node: Node, key: str) -> None:
    a, b = f"{key}:a", f"{key}:b"
    async with aio.Palisade(a_node.url) as locks:
        with pytest.raises(LockLost, match=f"^{a}: "):
            async with locks.lock_all([a, b]):
                a_node.outside.say("LOCK.BREAK", a)
        assert a_node.outside.users(b) == (0, 0)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
async def test_no_block_begins_if_one_was_lost_while_the_next_was_waited_for(face: str, a_node: Node, key: str) -> None:
    a, b = f"{key}:a", f"{key}:b"
    a_node.outside.say("LOCK.ACQUIRE", b, "somebody", 60_000)
    lost: list[Loss] = []

    def in_threads() -> None:
        with Palisade(a_node.url, on_lost=lost.append) as locks, locks.lock_all([a, b]):
            pytest.fail("all or none")

    async def in_tasks() -> None:
        async with aio.Palisade(a_node.url, on_lost=lost.append) as locks, locks.lock_all([a, b]):
            pytest.fail("all or none")

    both = asyncio.ensure_future(in_thread(in_threads) if face == "threads" else in_tasks())
    await a_node.outside.waiters(b, 1)
    a_node.outside.say("LOCK.BREAK", a)
    await eventually("the first is lost", lambda: bool(lost))
    a_node.outside.say("LOCK.RELEASE", b, "somebody")
    with pytest.raises(LockLost, match=f"^{a}: "):
        await soon(both)
    await a_node.outside.free(b)
