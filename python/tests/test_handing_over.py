"""A lock that one program acquires, and another releases."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conftest import Bench
from palisade_client import BadArgument, LockLost
from waiting import eventually


async def test_a_lock_is_handed_over_to_a_worker(bench: Bench, key: str) -> None:
    enqueuer, worker = bench.locks(), bench.locks()
    lock = await enqueuer.lock(key, ttl=10)
    owner, token = await lock.hand_over()
    assert not lock.is_valid
    assert not lock.lost.is_set()
    with pytest.raises(LockLost):
        await lock.extend()
    # The end of the one who enqueues leaves the lock to the worker, which extends it.
    assert await lock.release()
    await enqueuer.close()
    adopted = await worker.adopt(key, owner, token, ttl=2)
    assert adopted.token >= token
    until = time.monotonic() + adopted.valid_for
    await eventually("it is extended", lambda: time.monotonic() + adopted.valid_for > until + 0.1)
    async with adopted:
        pass
    assert bench.outside.users(key) == (0, 0)
    with pytest.raises(LockLost):
        await worker.adopt(key, owner, token)


async def test_a_lock_that_nobody_adopts_is_free_after_its_lease(bench: Bench, key: str) -> None:
    locks = bench.locks()
    await (await locks.lock(key, ttl=2)).hand_over()
    assert bench.outside.users(key)[0] == 1
    await eventually("its lease ends", lambda: bench.outside.users(key)[0] == 0)


async def test_an_older_grant_of_the_same_owner_is_not_adopted(on_node: Bench, key: str) -> None:
    locks = on_node.locks()
    lock = await locks.lock(key)
    with pytest.raises(LockLost, match="its token is"):
        await locks.adopt(key, lock.owner, lock.token + 1)
    assert await lock.release()


@pytest.mark.parametrize(
    ("owner", "token", "options"), [("", 1, {}), ("me", 0, {}), ("me", 2**53, {}), ("me", 1, {"note": "mine"}), ("me", 1, {"wait": 1})]
)
async def test_what_cannot_be_adopted_is_refused(on_node: Bench, key: str, owner: str, token: int, options: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        await on_node.locks().adopt(key, owner, token, **options)


async def test_only_an_exclusive_lock_is_handed_over(on_node: Bench, key: str) -> None:
    locks = on_node.locks()
    for lock in (await locks.read_lock(key), await locks.semaphore(f"{key}:s", 2).acquire()):
        with pytest.raises(BadArgument, match="only an exclusive lock"):
            await lock.hand_over()
        assert await lock.release()
