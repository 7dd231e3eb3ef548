"""Writers that become readers, and readers that become writers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conftest import Bench
from palisade_client import BadArgument, LockLost, LossReason, NotAcquired
from waiting import eventually


async def test_a_writer_becomes_a_reader_and_waiting_readers_get_in(bench: Bench, key: str) -> None:
    locks = bench.locks()
    lock = await locks.write_lock(key)
    token = lock.token
    reading = asyncio.create_task(_read(locks, key))
    await eventually("a reader waits", lambda: bench.outside.users(key)[1] == 1)
    await lock.downgrade()
    reader = await reading
    assert lock.token >= token
    assert bench.outside.users(key)[0] == 2
    await lock.extend()
    await lock.downgrade()
    assert await reader.release()
    assert await lock.release()
    with pytest.raises(LockLost):
        await lock.downgrade()


async def _read(locks: Any, key: str) -> Any:
    return await locks.read_lock(key)


async def test_a_reader_becomes_a_writer_if_it_is_alone(on_node: Bench, key: str) -> None:
    locks = on_node.locks()
    lock, other = await locks.read_lock(key), await locks.read_lock(key)
    token = other.token
    with pytest.raises(NotAcquired) as refused:
        await lock.upgrade()
    assert refused.value.reason == "held"
    assert await other.release()
    await lock.upgrade()
    assert lock.token > token
    assert await locks.try_lock(key) is None
    on_node.outside.say("LOCK.BREAK", key)
    with pytest.raises(LockLost) as lost:
        await lock.upgrade()
    assert lost.value.loss.reason is LossReason.TAKEN_AWAY


async def test_a_permit_has_no_readers_and_writers(on_node: Bench, key: str) -> None:
    permit = await on_node.locks().semaphore(key, 2).acquire()
    for convert in (permit.downgrade, permit.upgrade):
        with pytest.raises(BadArgument, match=f"^{key}: a permit has no readers"):
            await convert()
    assert await permit.release()


async def test_a_lost_writer_does_not_become_a_reader(bench: Bench, key: str) -> None:
    lock = await bench.locks().write_lock(key)
    bench.outside.say("LOCK.BREAK", key)
    with pytest.raises(LockLost) as lost:
        await lock.downgrade()
    assert lost.value.loss.reason is LossReason.TAKEN_AWAY
