"""Commands that a lock sends through a gate: which commands pass, and that a refused command
changes nothing."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio

import palisade_client
from conftest import Bench
from faces import in_thread
from palisade_client import BadArgument, Fenced, LockLost, Misconfigured
from servers import Agent, Node
from waiting import eventually


class Data:
    """The data of a node, which the test reaches with redis-py."""

    def __init__(self, path: str, face: str) -> None:
        self._is_threaded = face == "threads"
        kind: Any = redis.Redis if self._is_threaded else redis.asyncio.Redis
        self.client = kind(unix_socket_path=path, decode_responses=True)

    async def run(self, work: Any) -> Any:
        """Returns the result of a command."""
        if self._is_threaded:
            return await in_thread(work)
        return await work()

    def fenced(self, lock: Any, *args: Any, **options: Any) -> Any:
        return getattr(lock, "real", lock).fenced(self.client, *args, **options)

    async def close(self) -> None:
        await (in_thread(self.client.close) if self._is_threaded else self.client.aclose())


@pytest.fixture
async def data(a_node: Node, face: str) -> AsyncIterator[Data]:
    data = Data(a_node.path, face)
    yield data
    await data.close()


async def test_commands_pass_until_a_newer_holder_has_come(bench: Bench, data: Data, a_node: Node, key: str) -> None:
    locks, gate, record = bench.locks(), f"{key}:gate", f"{key}:record"
    late = await locks.lock(key)
    writes = data.fenced(late, gate)
    assert await data.run(lambda: writes.hset(record, mapping={"state": "open", "price": 3})) == 2
    assert await data.run(lambda: writes.hgetall(record)) == {"state": "open", "price": "3"}
    assert await data.run(lambda: writes.get(f"{key}:missing")) is None
    assert await data.run(lambda: writes.object("encoding", record)) == "listpack"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await data.run(lambda: writes.get(record))
    seen = late.token + 5
    a_node.outside.say("LOCK.GATE", gate, seen)
    with pytest.raises(Fenced, match=f"^{key}: the token {late.token} is older than {seen}") as refused:
        await data.run(lambda: writes.hset(record, "state", "late"))
    assert (refused.value.token, refused.value.seen) == (late.token, seen)
    assert pickle.loads(pickle.dumps(refused.value)).seen == seen
    assert a_node.outside.say("HGET", record, "state") == "open"
    await late.release()


async def test_a_holder_that_has_lost_its_lock_sends_nothing(on_node: Bench, data: Data, a_node: Node, key: str) -> None:
    lock = await on_node.locks().lock(key)
    writes = data.fenced(lock, f"{key}:gate")
    await lock.release()
    with pytest.raises(LockLost) as refused:
        await data.run(lambda: writes.set(f"{key}:record", "late"))
    assert refused.value.loss.reason == "released"
    assert a_node.outside.say("EXISTS", f"{key}:record", f"{key}:gate") == 0


async def test_a_refusal_makes_the_lock_ask_whether_it_is_held(on_node: Bench, data: Data, a_node: Node, key: str) -> None:
    lock = await on_node.locks().lock(key, ttl=60)
    a_node.outside.say("LOCK.BREAK", key)
    a_node.outside.say("LOCK.GATE", f"{key}:gate", lock.token + 1)
    with pytest.raises(Fenced):
        await data.run(lambda: data.fenced(lock, f"{key}:gate").set(f"{key}:record", "late"))
    await eventually("the lock is lost", lambda: bool(lock.lost))
    assert lock.lost.loss.reason == "taken-away"
    assert not await lock.release()


async def test_readers_and_permits_come_as_such(on_node: Bench, data: Data, a_node: Node, key: str) -> None:
    locks, gate = on_node.locks(), f"{key}:gate"
    reader, other = await locks.read_lock(key), await locks.read_lock(key)
    for one in (other, reader):
        assert await data.run(lambda one=one: data.fenced(one, gate).get(f"{key}:x")) is None
    info = a_node.outside.info(gate)
    assert info is not None
    assert (info["largest"], info["exclusive"], info["shared"]) == (other.token, 0, other.token)
    seats = locks.semaphore(f"{key}:seats", 2)
    first, second = await seats.acquire(), await seats.acquire()
    for permit in (second, first):
        assert await data.run(lambda permit=permit: data.fenced(permit, f"{key}:seats:gate").incr(f"{key}:x")) > 0
    only = await locks.semaphore(f"{key}:only", 1).acquire()
    assert await data.run(lambda: data.fenced(only, held=True).incr(f"{key}:x")) > 0
    for lock in (reader, other, first, second, only):
        await lock.release()


async def test_held_asks_the_lock_itself(on_node: Bench, data: Data, a_node: Node, key: str) -> None:
    lock = await on_node.locks().lock(key, ttl=60)
    writes = data.fenced(lock, held=True)
    assert await data.run(lambda: writes.set(f"{key}:record", "open"))
    a_node.outside.say("LOCK.BREAK", key)
    with pytest.raises(LockLost) as refused:
        await data.run(lambda: writes.set(f"{key}:record", "late"))
    assert refused.value.loss.reason == "taken-away"
    assert a_node.outside.say("GET", f"{key}:record") == "open"
    await lock.release()


async def test_keep_bounds_the_life_of_a_gate(on_node: Bench, data: Data, a_node: Node, key: str) -> None:
    async with on_node.locks().lock(key) as lock:
        await data.run(lambda: data.fenced(lock, f"{key}:gate", keep=90).set(f"{key}:record", "open"))
    info = a_node.outside.info(f"{key}:gate")
    assert info is not None
    assert 80_000 < info["keep"] < 102_000


async def test_what_cannot_be_meant_is_refused(on_node: Bench, data: Data, an_agent: Agent, face: str, key: str) -> None:
    async with on_node.locks().lock(key) as lock:
        wrong: list[tuple[tuple[object, ...], dict[str, object]]] = [
            ((), {}),
            (("gate",), {"held": True}),
            ((), {"held": True, "keep": 3}),
            (("gate",), {"keep": -1}),
            ((3,), {}),
        ]
        for args, options in wrong:
            with pytest.raises(BadArgument):
                data.fenced(lock, *args, **options)
        assert not hasattr(data.fenced(lock, "gate"), "pipeline")
        with Node(module=False) as bare:
            elsewhere = Data(bare.path, face)
            with pytest.raises(Misconfigured, match="load the Palisade module there"):
                await elsewhere.run(lambda: elsewhere.fenced(lock, "gate").set("x", "1"))
            assert bare.outside.say("EXISTS", "x") == 0
            await elsewhere.close()
        agent = Data(an_agent.path, face)
        with pytest.raises(redis.ResponseError, match="send it there"):
            await agent.run(lambda: agent.fenced(lock, "gate").set("x", "1"))
        await agent.close()


def test_a_user_with_lock_gate_alone_writes_through_it_and_not_around_it(a_node: Node, key: str) -> None:
    a_node.outside.say("ACL", "SETUSER", "writer", "on", ">secret", "-@all", "+lock.gate", "~invoice:*")
    with palisade_client.Palisade(a_node.url) as locks, locks.lock(key) as lock:
        writer = redis.Redis(unix_socket_path=a_node.path, username="writer", password="secret")
        assert lock.fenced(writer, "invoice:gate").set("invoice:43", "paid")
        with pytest.raises(redis.exceptions.NoPermissionError):
            writer.set("invoice:43", "around")
        with pytest.raises(redis.exceptions.NoPermissionError):
            lock.fenced(writer, "invoice:gate").set("other", "1")
        writer.close()
    assert a_node.outside.say("GET", "invoice:43") == "paid"


async def test_a_cancelled_command_leaves_the_client_usable(a_node: Node, key: str) -> None:
    client = redis.asyncio.Redis(unix_socket_path=a_node.path)
    async with palisade_client.AsyncPalisade(a_node.url) as locks, locks.lock(key) as lock:
        writes = lock.fenced(client, "gate:cancelled")
        task = asyncio.ensure_future(writes.set(f"{key}:record", "open"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert await writes.set(f"{key}:record", "paid")
    await client.aclose()
