"""Several locks at once, all or none."""

from __future__ import annotations

import threading

import pytest

from palisade_client import BadArgument, LockLost, NotAcquired, Palisade, aio
from servers import Node


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
