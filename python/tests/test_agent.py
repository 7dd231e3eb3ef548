"""Tests that a majority of five nodes holds a lock through an agent: two of them may die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Bench
from palisade_client import LossReason, NoQuorum, Released
from palisade_client._address import Address
from palisade_client._connections import Connections
from servers import Agent, Node
from waiting import eventually, passed, soon


class Phase:
    """A barrier for all stories and the action between two phases."""

    def __init__(self, parties: int) -> None:
        self._missing = parties
        self._all = asyncio.Event()
        self._done = asyncio.Event()

    async def arrive(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all.set()
        await soon(self._done.wait())

    async def do(self, work: Callable[[], object]) -> None:
        await soon(self._all.wait())
        work()
        self._done.set()


async def story(bench: Bench, key: str, two_die: Phase, a_third_dies: Phase, it_is_back: Phase) -> None:
    """Uses locks and a leader in four phases: all nodes are up, two are killed, a third is killed,
    the third is started again."""
    locks, others = bench.locks(ttl=2.4), bench.locks(ttl=30)
    first = await locks.lock(key)
    inside, alone = await others.lock(f"{key}:inside"), await others.lock(f"{key}:alone")
    election, leaders = locks.election(f"{key}:e"), others.election(f"{key}:e").observe()
    leader = await election.campaign("first")
    while not is_told(await soon(anext(leaders)), b"first"):
        pass
    waits = asyncio.ensure_future(others.lock(key))
    campaigns = asyncio.ensure_future(others.election(f"{key}:e").campaign("second"))
    await two_die.arrive()
    # This is longer than the lease.
    await passed(3)
    assert first.is_valid
    assert not waits.done()
    token = first.token
    assert await first.release()
    async with await soon(waits) as second:
        assert second.token > token
        await second.extend()
    assert await leader.resign()
    next_leader = await soon(campaigns)
    assert next_leader.term > leader.term
    while not is_told(await soon(anext(leaders)), b"second"):
        pass
    await leaders.aclose()
    async with others.semaphore(f"{key}:s", 2).acquire() as permit:
        assert permit.number in (1, 2)
    left = await others.lock(f"{key}:left", ttl=1.5)
    assert bench.outside.users(key)[0] == 0
    await a_third_dies.arrive()
    for wait in (0, 0.3):
        began = time.monotonic()
        with pytest.raises(NoQuorum, match=f"^{key}:none: NOQUORUM .*5 nodes"):
            await others.lock(f"{key}:none", wait=wait)
        assert time.monotonic() - began >= wait
    async with inside:
        "The work was done under a valid lock."
    assert await alone.release() is Released.UNKNOWN
    assert await soon(left.lost.wait())
    waits = asyncio.ensure_future(others.lock(f"{key}:waits", wait=120))
    await passed(0.5)
    assert not waits.done()
    await it_is_back.arrive()
    async with await soon(waits) as late:
        assert late.is_valid


def is_told(leader: Any, value: bytes) -> bool:
    return leader is not None and leader.value == value


async def test_two_of_five_nodes_may_die_and_a_third_may_not(key: str) -> None:
    with Agent() as agent:
        two_die, a_third_dies, it_is_back = Phase(2), Phase(2), Phase(2)
        benches = [Bench(agent, face) for face in ("threads", "asyncio")]
        stories = [asyncio.ensure_future(story(bench, f"{key}:{n}", two_die, a_third_dies, it_is_back)) for n, bench in enumerate(benches)]

        def kill_two() -> None:
            for node in agent.nodes[:2]:
                node.kill()

        await two_die.do(kill_two)

        def bring_back() -> None:
            agent.nodes[2].start()
            agent.nodes[2].lift()

        await a_third_dies.do(agent.nodes[2].kill)
        await it_is_back.do(bring_back)
        await soon(asyncio.gather(*stories))
        # A lasting error ends a wait at once, also if it comes from nodes behind an agent.
        for node in agent.nodes[:2]:
            node.start()
        for node in agent.nodes:
            node.outside.say("ACL", "SETUSER", "default", "-lock.acquire")
        for bench in benches:
            with pytest.raises(NoQuorum, match="NOPERM"):
                await soon(bench.locks().lock(key, wait=3600))
        await asyncio.gather(*(bench.end() for bench in benches))


async def test_a_holder_hears_at_once_that_its_lock_was_taken_away(key: str) -> None:
    with Agent() as agent:

        def counted(name: str) -> int:
            return int(agent.outside.say("INFO")[name])

        for face in ("threads", "asyncio"):
            bench = Bench(agent, face)
            locks = bench.locks(ttl=30)
            lock = await locks.lock(key)
            await eventually("it watches", lambda: counted("blocked_clients") == 1)
            assert await lock.release()
            # Two connections are left: this test's own, and the shared one.
            await eventually("its connection is closed", lambda: (counted("blocked_clients"), counted("connected_clients")) == (0, 2))
            # No extension reports the loss of the second one, and its lease would end as `NOT_EXTENDED`.
            taken = [await locks.lock(f"{key}:1"), await locks.lock(f"{key}:2", auto_extend=False)]
            await eventually("both watch", lambda: counted("blocked_clients") == 2)
            for node in agent.nodes:
                for n in (1, 2):
                    node.outside.say("LOCK.BREAK", f"{key}:{n}")
            for lost in [await soon(lock.lost.wait()) for lock in taken]:
                assert lost.reason is LossReason.TAKEN_AWAY
            await eventually("their connections are closed", lambda: (counted("blocked_clients"), counted("connected_clients")) == (0, 2))
            await bench.end()


async def test_an_agent_is_told_from_a_node(server: Node | Agent) -> None:
    connections = Connections(Address(server.url), 3)
    assert await connections.is_agent() is isinstance(server, Agent)
    await connections.close()
