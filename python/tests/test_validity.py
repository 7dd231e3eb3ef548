"""A held lock is extended, and its holder learns of a loss in time."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from conftest import Bench
from palisade_client import BadArgument, LockLost, Loss, LossReason, Released, Unavailable
from servers import Agent, Node
from waiting import eventually, passed, soon


async def lost_by(lock: Any, *expected: LossReason) -> bool:
    """Returns whether the lock is lost for one of these reasons, or because this program could not run just then."""
    loss = await soon(lock.lost.wait())
    assert isinstance(loss, Loss)
    assert not lock.is_valid
    assert lock.lost.loss == loss
    assert lock.lost
    return loss.reason in (*expected, LossReason.ASLEEP)


async def test_locks_are_extended_over_several_leases(a_node: Node, an_agent: Agent, key: str) -> None:
    benches = [Bench(server, face) for server in (a_node, an_agent) for face in ("threads", "asyncio")]
    keys = [f"{key}:{n}" for n in range(len(benches))]
    held = [await bench.locks().lock(key, ttl=2.4) for bench, key in zip(benches, keys, strict=True)]
    await passed(6)
    for bench, key, lock in zip(benches, keys, held, strict=True):
        assert lock.is_valid
        assert not lock.lost
        assert await bench.locks().try_lock(key) is None
        assert await lock.release()
        await bench.end()


async def test_it_is_extended_when_that_is_asked_for(bench: Bench, key: str) -> None:
    lock = await bench.locks().lock(key, ttl=20, auto_extend=False)
    await lock.extend(40)
    assert 20 < lock.valid_for <= 40
    await lock.extend()
    assert lock.valid_for > 20, "a lease that lasts longer stays"
    with pytest.raises(BadArgument):
        await lock.extend(0)
    assert await lock.release()
    with pytest.raises(LockLost, match="it was released"):
        await lock.extend()


async def test_it_is_lost_when_it_is_taken_away(bench: Bench, key: str) -> None:
    locks = bench.locks()
    told: list[Loss] = []
    lock = await locks.lock(key, ttl=3, on_lost=told.append)
    bench.outside.say("LOCK.BREAK", key)
    assert await lost_by(lock, LossReason.TAKEN_AWAY)
    await eventually("on_lost is called", lambda: told == [lock.lost.loss])
    for ask in (lock.extend, lock.reenter):
        with pytest.raises(LockLost):
            await ask()
    assert not await lock.release()


async def test_it_is_lost_when_nobody_extends_it_and_at_the_end_of_max_hold(bench: Bench, key: str) -> None:
    locks = bench.locks()
    left = await locks.lock(f"{key}:1", ttl=0.3, auto_extend=False)
    assert await lost_by(left, LossReason.NOT_EXTENDED)
    held = await locks.lock(f"{key}:2", ttl=0.6, max_hold=0.3)
    assert await lost_by(held, LossReason.MAX_HOLD)
    assert not await left.release()
    await bench.outside.free(f"{key}:1")
    await bench.outside.free(f"{key}:2")


async def test_it_is_told_of_while_its_validity_ends_not_later(bench: Bench, key: str) -> None:
    lock = await bench.locks().lock(key, ttl=0.5, auto_extend=False)
    while lock.is_valid:
        await asyncio.sleep(0.01)
    assert lock.lost, "by the clock, whether or not anything ran meanwhile"
    assert lock.lost.loss.reason in (LossReason.NOT_EXTENDED, LossReason.ASLEEP)


async def test_a_block_is_told_that_its_lock_was_lost(bench: Bench, key: str) -> None:
    locks = bench.locks(ttl=0.3, auto_extend=False)
    with pytest.raises(LockLost) as told:
        async with locks.lock(key) as lock:
            assert await lost_by(lock, LossReason.NOT_EXTENDED)
    assert told.value.loss == lock.lost.loss
    with pytest.raises(KeyError, match="of the block"):
        async with locks.lock(key) as lock:
            await soon(lock.lost.wait())
            raise KeyError("of the block")
    with pytest.raises(LockLost) as told:
        async with locks.lock(key, ttl=20) as lock:
            bench.outside.say("LOCK.BREAK", key)
    assert told.value.loss.reason == "taken-away"


async def test_who_waits_for_a_loss_is_told_that_there_was_none(bench: Bench, key: str) -> None:
    lock = await bench.locks().lock(key)
    waits = asyncio.ensure_future(lock.lost.wait())
    await asyncio.sleep(0)
    await lock.release()
    assert await soon(waits) is None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_lock_that_nothing_refers_to_is_not_extended(bench: Bench, key: str) -> None:
    locks = bench.locks(ttl=1)
    await locks.lock(key)
    outer = await locks.lock(f"{key}:2", ttl=30)
    await outer.reenter()
    await bench.outside.free(key)
    assert outer.is_valid, "one hold of it is left"
    assert await outer.release()
    await bench.outside.free(f"{key}:2")


async def test_a_server_that_hangs_loses_its_locks_in_time(key: str) -> None:
    with Node() as node:
        benches = [Bench(node, face) for face in ("threads", "asyncio")]
        each = [(bench.locks(answer_within=2), f"{key}:{n}") for n, bench in enumerate(benches)]
        held = [await locks.lock(key, ttl=4) for locks, key in each]
        node.signal(signal.SIGSTOP)

        async def hangs(lock: Any, locks: Any, key: str) -> None:
            extending = asyncio.ensure_future(lock.extend())
            assert await lost_by(lock, LossReason.NOT_EXTENDED_IN_TIME)
            with pytest.raises(Unavailable, match=r"stays valid for [\d.]+ s: unix:.* did not answer within"):
                await extending
            with pytest.raises(Unavailable):
                await locks.try_lock(key)

        await asyncio.gather(*(hangs(lock, *at) for lock, at in zip(held, each, strict=True)))
        node.signal(signal.SIGCONT)
        for lock, (_, key) in zip(held, each, strict=True):
            assert not await lock.release()
            await node.outside.free(key)
        held = [await locks.lock(key, ttl=60) for locks, key in each]
        node.signal(signal.SIGSTOP)
        assert await asyncio.gather(*(lock.release() for lock in held)) == [Released.UNKNOWN] * 2
        node.signal(signal.SIGCONT)
        for bench, (_, key) in zip(benches, each, strict=True):
            await node.outside.free(key)
            await bench.end()


async def test_a_server_that_dies_loses_its_locks_in_time(own: tuple[Node, Bench], key: str) -> None:
    node, bench = own
    lock = await bench.locks(ttl=1.5).lock(key)
    node.kill()
    with pytest.raises(LockLost) as told:
        async with lock:
            assert await lost_by(lock, LossReason.NOT_EXTENDED_IN_TIME)
    if told.value.loss.reason != LossReason.ASLEEP:
        assert str(node.path) in told.value.loss.message, "it says what was wrong"


async def test_a_connection_that_breaks_is_replaced_and_the_lock_extended(on_node: Bench, key: str) -> None:
    lock = await on_node.locks().lock(key, ttl=30)
    for _ in range(3):
        on_node.outside.kill_connections()
        await passed(0.2)
        await lock.extend()
    on_node.outside.kill_connections()
    assert await lock.release()


async def test_an_event_loop_that_was_busy_finds_its_lock_lost_at_the_first_look(a_node: Node, key: str) -> None:
    bench = Bench(a_node, "asyncio")
    lock = await bench.locks().lock(key, ttl=0.4)
    time.sleep(1)  # noqa: ASYNC251
    assert not lock.is_valid
    assert lock.lost.loss.reason == LossReason.ASLEEP
    assert not await lock.release()
    await bench.outside.free(key)
    await bench.end()
