"""The roll-out of docs/migrate.md: versions that run together exclude each other, and a skipped step breaks that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError

from palisade_client import DualLock, Lock, LockLost, NotAcquired, Palisade, aio
from servers import Node

Version = Callable[[redis.Redis, Palisade, str], AbstractContextManager[Any]]


def old_lock(data: redis.Redis, key: str) -> Any:
    return data.lock(key, timeout=30, blocking=False)


def old(data: redis.Redis, locks: Palisade, key: str) -> Any:
    return old_lock(data, key)


def both(data: redis.Redis, locks: Palisade, key: str) -> DualLock[Lock]:
    return DualLock(old_lock(data, key), lambda: locks.lock(f"{key}:new", wait=0))


def new(data: redis.Redis, locks: Palisade, key: str) -> Any:
    return locks.lock(f"{key}:new", wait=0)


def held_at_once(a_node: Node, key: str, first: Version, second: Version) -> bool:
    """Returns whether both versions hold their locks at once."""
    with redis.Redis(unix_socket_path=a_node.path) as data, Palisade(a_node.url) as locks, ExitStack() as held:
        held.enter_context(first(data, locks, key))
        try:
            held.enter_context(second(data, locks, key))
        except (LockError, NotAcquired):
            return False
        return True


@pytest.mark.parametrize(("first", "second"), [(old, both), (both, old), (both, both), (both, new), (new, both), (new, new)])
def test_one_step_beside_the_next_keeps_exclusion(a_node: Node, key: str, first: Version, second: Version) -> None:
    assert not held_at_once(a_node, key, first, second)
    # Nothing was left behind, in either lock.
    with redis.Redis(unix_socket_path=a_node.path) as data, Palisade(a_node.url) as locks, both(data, locks, key):
        pass


@pytest.mark.parametrize(("first", "second"), [(old, new), (new, old)])
def test_a_skipped_step_breaks_exclusion(a_node: Node, key: str, first: Version, second: Version) -> None:
    assert held_at_once(a_node, key, first, second)


def test_the_loss_of_either_lock_is_raised(a_node: Node, key: str) -> None:
    with redis.Redis(unix_socket_path=a_node.path) as data, Palisade(a_node.url) as locks:
        with pytest.raises(LockError), both(data, locks, key):
            data.delete(key)
        with pytest.raises(LockLost), both(data, locks, key):
            a_node.outside.say("LOCK.BREAK", f"{key}:new")
        assert data.exists(key) == 0, "the old lock was left"


async def test_with_asyncio(a_node: Node, key: str) -> None:
    async with redis.asyncio.Redis(unix_socket_path=a_node.path) as data, aio.Palisade(a_node.url) as locks:

        def one() -> aio.DualLock[aio.Lock]:
            return aio.DualLock(data.lock(key, timeout=30, blocking=False), lambda: locks.lock(f"{key}:new", wait=0))

        async with one() as lock:
            assert lock.is_valid
            with pytest.raises(NotAcquired, match="the old lock was not acquired"):
                await one().__aenter__()
        async with locks.lock(f"{key}:new"):
            with pytest.raises(NotAcquired):
                await one().__aenter__()
        assert await data.exists(key) == 0
