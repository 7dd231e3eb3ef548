"""Locks in memory, compared with those of a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Bench
from faces import Threaded
from palisade_client import BadArgument, LockLost, LossReason, NotAcquired, Palisade
from palisade_client.testing import FakeServer
from waiting import at_last, eventually


def locks_of(server: FakeServer, face: str, **options: Any) -> Any:
    return server.async_locks(**options) if face == "asyncio" else Threaded(server.locks(**options))


class Story:
    """The outcomes of the steps of a program that uses locks."""

    def __init__(self, locks: Any, waiting: Callable[[str], int], key: str) -> None:
        self.locks, self.waiting, self.key = locks, waiting, key
        self.told: list[str] = []

    async def tell(self, what: str, work: Any) -> Any:
        try:
            result = await work
        except Exception as error:
            self.told.append(f"{what}: {type(error).__name__}: {str(error).replace(self.key, 'k').split(';')[0]}")
            return None
        self.told.append(f"{what}: {result}" if isinstance(result, (bool, str, type(None))) else what)
        return result

    async def waiter(self, number: int) -> None:
        await eventually(f"{number} wait", lambda: self.waiting(self.key) == number)

    async def play(self) -> list[str]:
        first = await self.tell("lock", self.locks.lock(self.key, note="the first"))
        await self.tell("try", self.locks.try_lock(self.key))
        with pytest.raises(NotAcquired) as refused:
            await self.locks.lock(self.key, wait=0.02)
        holder = refused.value.holder
        assert holder is not None
        self.told += [refused.value.reason, holder.note, str(holder.token == first.token)]
        if not isinstance(self.locks, Threaded):
            given_up = asyncio.ensure_future(self._taken())
            await self.waiter(1)
            given_up.cancel()
            await self.waiter(0)
        inner = await self.tell("reenter", first.reenter())
        await self.tell("extend", first.extend(20))
        await self.tell("outer", first.release())
        await self.tell("still held", self.locks.try_lock(self.key))
        following = asyncio.ensure_future(self._taken())
        await self.waiter(1)
        await self.tell("inner", inner.release())
        second = await following
        self.told.append(f"rises: {second.token > first.token}")
        await self.tell("downgrade", second.downgrade())
        reader = await self.tell("read", self.locks.read_lock(self.key, wait=0))
        await self.tell("upgrade", second.upgrade())
        await self.tell("release", reader.release())
        await self.tell("upgrade", second.upgrade())
        await self.tell("read", self.locks.read_lock(self.key, wait=0))
        owner, token = await second.hand_over()
        adopted = await self.tell("adopt", self.locks.adopt(self.key, owner, token))
        await self.tell("release", adopted.release())
        await self.tell("adopt again", self.locks.adopt(self.key, owner, token))
        await self.permits()
        await self.leaders()
        short = await self.locks.lock(self.key, ttl=0.2, auto_extend=False)
        self.told.append(str((await short.lost.wait()).reason))
        await self.tell("after its lease", short.release())
        return self.told

    async def permits(self) -> None:
        permits = self.locks.semaphore(self.key, 2)
        one, two = await self.tell("permit", permits.acquire()), await self.tell("permit", permits.acquire())
        await self.tell("permit", permits.try_acquire())
        self.told.append(str(sorted([one.number, two.number])))
        await self.tell("a lock beside permits", self.locks.try_lock(self.key))
        await self.tell("convert", one.downgrade())
        for permit in (one, two):
            await self.tell("release", permit.release())

    async def leaders(self) -> None:
        election = self.locks.election(self.key)
        await self.tell("nobody", election.leader())
        leadership = await election.campaign("10.0.0.1")
        await self.tell("proclaim", leadership.proclaim("10.0.0.2"))
        leader = await election.leader()
        self.told.append(f"{leader.value} {leader.sequence} {leader.term == leadership.term}")
        await self.tell("resign", leadership.resign())

    async def _taken(self) -> Any:
        return await self.locks.lock(self.key)


async def test_the_fake_answers_as_a_server_does(on_node: Bench, face: str, key: str) -> None:
    server = FakeServer()
    fake = locks_of(server, face)
    told = await Story(fake, server.waiting, key).play()
    await fake.close()
    assert told == await Story(on_node.locks(), lambda name: on_node.outside.users(name)[1], key).play()


async def test_a_lock_is_taken_away_at_once(face: str) -> None:
    server = FakeServer()
    locks = locks_of(server, face)
    lock = await locks.lock("k", ttl=3600)
    following = asyncio.ensure_future(_lock(locks))
    await eventually("it waits", lambda: server.waiting("k") == 1)
    server.take_away("k")
    assert not lock.is_valid
    assert lock.lost.loss is not None
    assert lock.lost.loss.reason is LossReason.TAKEN_AWAY
    assert not await lock.release()
    assert (await following).is_valid
    assert server.is_held("k")
    await locks.close()


async def _lock(locks: Any) -> Any:
    return await locks.lock("k")


def import_all(locks: Palisade, each: Callable[[], None]) -> None:
    """The program under test: it stops when its lock is lost."""
    with locks.lock("import") as lock:
        for _ in range(3):
            if lock.is_valid:
                each()


def test_a_program_stops_when_its_lock_is_lost() -> None:
    server, done = FakeServer(), []

    def each() -> None:
        done.append("one")
        server.take_away("import")

    with server.locks() as locks, pytest.raises(LockLost):
        import_all(locks, each)
    assert done == ["one"]


def test_a_lock_is_held_by_another_program() -> None:
    server = FakeServer()
    release = server.hold_elsewhere("k")
    with pytest.raises(BadArgument, match="held already"):
        server.hold_elsewhere("k")
    with server.locks() as locks:
        assert locks.try_lock("k") is None
        thread = threading.Thread(target=lambda: locks.lock("k").release())
        thread.start()
        at_last("it waits", lambda: server.waiting("k") == 1)
        release()
        thread.join()
    assert not server.is_held("k")


def test_a_waiter_gets_the_lock_when_a_lease_ends() -> None:
    server = FakeServer()
    with server.locks() as dead, server.locks() as locks:
        dead.lock("k", ttl=0.2).hand_over()
        with locks.lock("k") as lock:
            assert lock.is_valid


def test_the_end_of_an_event_loop_does_not_hold_a_lock_up() -> None:
    server = FakeServer()

    async def hold() -> None:
        await server.async_locks().lock("k")

    asyncio.run(hold())
    server.take_away("k")
    assert not server.is_held("k")


async def test_leaders_in_memory_are_not_observed() -> None:
    server = FakeServer()
    async with server.async_locks() as locks:
        observation = locks.election("e").observe()
        assert await anext(observation) is None
        with pytest.raises(BadArgument, match=r"no 'LOCK\.WATCH'"):
            await anext(observation)
