"""Elections: one leader among many candidates, known to everybody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conftest import Bench
from palisade_client import Guarded, Leader, LockLost, LossReason, NotAcquired
from servers import Node
from waiting import soon


async def heard(leaders: Any) -> str:
    """Returns the next report to an observer, as text."""
    leader = await soon(anext(leaders))
    return f"{leader.sequence}: {leader.value.decode()}" if leader else "nobody"


async def test_a_leader_proclaims_and_resigns_and_the_next_one_leads(bench: Bench, key: str) -> None:
    election = bench.locks().election(key)
    assert await election.leader() is None
    leaders = election.observe()
    assert await heard(leaders) == "nobody"
    first = await election.campaign("10.0.0.1")
    assert await heard(leaders) == "1: 10.0.0.1"
    assert await election.leader() == Leader(first.term, 1, b"10.0.0.1")
    await first.proclaim("10.0.0.1:80")
    assert first.sequence == 2
    assert await heard(leaders) == "2: 10.0.0.1:80"

    campaigning = asyncio.ensure_future(bench.locks().election(key).campaign(bytes([0xFF, 0x20, 0])))
    await bench.outside.waiters(key, 1)
    assert await first.resign()
    second = await soon(campaigning)
    assert second.term > first.term
    assert (await election.leader()).value == bytes([0xFF, 0x20, 0])
    with pytest.raises(LockLost):
        await first.proclaim("late")
    async with second:
        await second.proclaim("")
    while await soon(anext(leaders)) is not None:
        pass
    await leaders.aclose()
    assert await election.leader() is None


async def test_who_holds_the_lock_only_is_no_leader(bench: Bench, key: str) -> None:
    locks = bench.locks()
    async with locks.lock(key, note="term 5 me"):
        assert await locks.election(key).leader() is None


async def test_what_a_leader_proclaims_is_numbered_where_it_was_reentered_too(bench: Bench, key: str) -> None:
    locks = bench.locks()
    leader = await locks.election(key).campaign("1")
    inner = await leader.reenter()
    await inner.proclaim("2")
    bench.outside.say("LOCK.NOTE", key, leader.owner, "somebody else", "SEQ", 7)
    await leader.proclaim("8")
    assert await locks.election(key).leader() == Leader(leader.term, 8, b"8")
    assert (leader.sequence, inner.sequence, inner.term) == (8, 8, leader.term)
    await inner.release()
    with pytest.raises(LockLost):
        await inner.proclaim("9")
    assert leader.is_valid
    await leader.resign()


async def test_a_leader_that_was_broken_is_told(bench: Bench, key: str) -> None:
    leader = await bench.locks().election(key).campaign("a", ttl=30)
    bench.outside.say("LOCK.BREAK", key)
    with pytest.raises(LockLost) as told:
        await leader.proclaim("b")
    assert told.value.loss.reason == LossReason.TAKEN_AWAY
    assert leader.lost


async def test_a_campaign_that_is_not_won_in_time_is_given_up(bench: Bench, key: str) -> None:
    locks = bench.locks()
    async with locks.lock(key):
        with pytest.raises(NotAcquired) as told:
            await locks.election(key).campaign("a", wait=0.05)
        assert told.value.reason == "timed-out"
    await bench.outside.free(key)


async def test_an_observation_ends_when_it_or_the_client_is_closed(bench: Bench, key: str) -> None:
    locks = bench.locks()
    election = locks.election(key)
    left, ended = election.observe(), election.observe()
    for leaders, close in ((left, left.aclose), (ended, locks.close)):
        assert await heard(leaders) == "nobody"
        waits = asyncio.ensure_future(anext(leaders, "ended"))
        await asyncio.sleep(0.01)
        await soon(close())
        assert await soon(waits) == "ended"
        assert await soon(anext(leaders, "ended")) == "ended"


async def test_an_observer_goes_on_when_its_connection_breaks(on_node: Bench, key: str) -> None:
    election = on_node.locks().election(key)
    leaders = election.observe()
    assert await heard(leaders) == "nobody"
    hearing = asyncio.ensure_future(heard(leaders))
    on_node.outside.kill_connections()
    async with election.campaign("a"):
        assert await hearing == "1: a"
    await leaders.aclose()


async def test_an_observer_is_told_nothing_by_a_server_that_may_have_forgotten(own: tuple[Node, Bench], key: str) -> None:
    node, bench = own
    election = bench.locks().election(key)
    node.outside.say("LOCK.GUARD", "ARM", 60_000)
    with pytest.raises(Guarded):
        await election.leader()
    leaders = election.observe()
    hearing = asyncio.ensure_future(heard(leaders))
    await asyncio.sleep(0.05)
    assert not hearing.done()
    node.outside.say("LOCK.GUARD", "LIFT")
    assert await hearing == "nobody"
    await leaders.aclose()
