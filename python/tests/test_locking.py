"""Locks exclude each other, are waited for in turn, and are free afterwards."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

import palisade_client
from conftest import Bench
from palisade_client import BadArgument, Closed, LockLost, NotAcquired, aio
from palisade_client._address import Address
from servers import Node
from waiting import boot_clock, eventually, passed, soon


async def test_a_lock_is_held_refused_to_others_and_free_again(bench: Bench, key: str) -> None:
    locks = bench.locks()
    lock = await locks.lock(key, note="web-3")
    assert lock.is_valid
    assert 0 < lock.valid_for <= 10 * 0.99 - 0.002
    info = bench.outside.info(key)
    assert info is not None
    # Behind an agent each node may have another one.
    assert info["token"] == lock.token or "agent" in bench.url
    assert re.fullmatch(r"web-3 \[holder=[\w.-]*/\d+/[0-9a-f]{8}/\d+\]", info["note"])
    assert await locks.try_lock(key) is None
    with pytest.raises(NotAcquired, match=rf'^{key}: somebody else holds the lock; it has been held for [\d.]+ s by "web-3"') as refused:
        await locks.lock(key, wait=0)
    assert refused.value.reason == "held"
    assert refused.value.holder is not None
    assert refused.value.holder.note == "web-3"
    assert await lock.release()
    assert await lock.release(), "the second call returns what the first did"
    assert not lock.is_valid
    assert not lock.lost
    await bench.outside.free(key)
    async with locks.lock(key) as after:
        assert after.token > lock.token


async def test_it_is_waited_for_in_turn_with_growing_tokens(bench: Bench, key: str) -> None:
    locks = bench.locks()
    first = await locks.lock(key)
    order: list[tuple[int, int]] = []

    async def work(n: int) -> None:
        async with locks.lock(key) as lock:
            order.append((n, lock.token))

    rest = []
    for n in (1, 2, 3):
        rest.append(asyncio.ensure_future(work(n)))
        await bench.outside.waiters(key, n)
    assert await first.release()
    await soon(asyncio.gather(*rest))
    assert [n for n, _ in order] == [1, 2, 3]
    tokens = [first.token, *(token for _, token in order)]
    assert tokens == sorted(set(tokens))
    await bench.outside.free(key)


async def test_many_at_once_exclude_each_other(bench: Bench, key: str) -> None:
    locks = bench.locks()
    inside = 0
    most = 0

    async def work() -> None:
        nonlocal inside, most
        async with locks.lock(key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await soon(asyncio.gather(*(work() for _ in range(24))))
    assert most == 1
    await bench.outside.free(key)


async def test_it_is_not_waited_for_any_longer_than_was_allowed(bench: Bench, key: str) -> None:
    locks = bench.locks()
    async with locks.lock(key):
        began = time.monotonic()
        with pytest.raises(NotAcquired, match=r"not free within 0\.12 s") as refused:
            await locks.lock(key, wait=timedelta(milliseconds=120))
        assert refused.value.reason == "timed-out"
        assert time.monotonic() - began >= 0.119
        await bench.outside.waiters(key, 0)


async def test_validity_counts_from_the_grant(bench: Bench, key: str) -> None:
    locks = bench.locks()
    first = await locks.lock(key)
    began = boot_clock()
    waits = asyncio.ensure_future(locks.lock(key, ttl=5, auto_extend=False))
    await bench.outside.waiters(key, 1)
    on_the_way = boot_clock() - began
    waited = 2 * on_the_way + 0.3
    await passed(waited)
    released = boot_clock()
    await first.release()
    lock = await soon(waits)
    left = lock.valid_for
    elapsed = boot_clock() - released
    assert left <= 5
    assert left >= (5 + waited) * 0.99 - waited - 0.02 - on_the_way - elapsed, "the time in the queue is not taken off"
    await lock.release()


async def test_any_bytes_are_a_key(bench: Bench) -> None:
    locks = bench.locks()
    key = bytes([0xFF, 0, 0x0D, 0x0A, 0x20, 0xFE])
    async with locks.lock(key) as lock:
        assert lock.key == key
        assert await locks.try_lock(key) is None
        other = await locks.try_lock(key[:-1])
        assert other is not None
        await other.release()


async def test_a_lock_is_reentered_and_free_with_the_last_one(bench: Bench, key: str) -> None:
    locks = bench.locks()
    outer = await locks.lock(key)
    inner = await outer.reenter()
    assert inner.token == outer.token

    def holds() -> int:
        info = bench.outside.info(key)
        assert info is not None
        return int(info["holds"])

    assert holds() == 2
    assert await inner.release()
    assert holds() == 1
    assert outer.is_valid
    assert not inner.is_valid
    with pytest.raises(LockLost, match="it was released"):
        await inner.reenter()
    async with outer.reenter() as again:
        assert holds() == 2
        assert again.owner == outer.owner
    await outer.release()
    await bench.outside.free(key)


async def test_it_is_free_after_a_block_however_that_ends(bench: Bench, key: str) -> None:
    locks = bench.locks()
    with pytest.raises(KeyError):
        async with locks.lock(key) as lock:
            assert lock.is_valid
            raise KeyError("of the block")
    await bench.outside.free(key)
    async with locks.lock(key) as lock:
        await lock.release()
    await bench.outside.free(key)
    with pytest.raises(LockLost):
        async with lock:
            pass


async def test_readers_get_in_together_and_a_writer_alone(bench: Bench, key: str) -> None:
    locks = bench.locks()
    readers = [await locks.read_lock(key), await locks.read_lock(key)]
    with pytest.raises(NotAcquired):
        await locks.write_lock(key, wait=0)
    writing = asyncio.ensure_future(locks.write_lock(key))
    await eventually("it waits on the nodes", lambda: (bench.outside.info(key) or {})["waiters"] == 1)
    with pytest.raises(NotAcquired):
        await locks.read_lock(key, wait=0)
    for reader in readers:
        await reader.release()
    writer = await soon(writing)
    assert all(writer.token > reader.token for reader in readers)
    await writer.release()


async def test_permits_have_a_number_each(bench: Bench, key: str) -> None:
    uploads = bench.locks().semaphore(key, 2)
    permits = [await uploads.acquire(), await uploads.acquire()]
    assert sorted(permit.number for permit in permits) == [1, 2]
    assert await uploads.try_acquire() is None
    third = asyncio.ensure_future(uploads.acquire())
    await bench.outside.waiters(key, 1)
    await permits[1].release()
    async with await soon(third) as permit:
        assert permit.number == permits[1].number
        assert permit.token > permits[1].token
    await permits[0].release()


async def test_bad_arguments_are_refused_by_name_and_nothing_is_sent(face: str) -> None:
    kind: Any = aio.Palisade if face == "asyncio" else palisade_client.Palisade
    locks = kind("redis://127.0.0.1:1")

    async def come(result: Any) -> None:
        if face == "asyncio":
            await result

    bounds = "^k: ttl must be a number of seconds from 0.001 to 86400, or a timedelta, not"
    one = r"^the address must be of one server: .*docs/agent\.md"
    several = r"^several addresses were given, and this takes one: (?!.*secret).*`palisade agent`.*docs/agent\.md"
    cases: list[tuple[Any, str]] = [
        (lambda: locks.lock("k", ttl=0), f"{bounds} 0$"),
        (lambda: locks.lock("k", ttl=float("nan")), bounds),
        (lambda: locks.lock("k", ttl=True), bounds),
        (lambda: locks.lock("k", ttl="10"), bounds),
        (lambda: locks.lock("k", wait=-1), "^k: wait must be a number of seconds from 0 to 86400"),
        (lambda: locks.lock("k", note="ä" * 513), "^k: note must be at most 1024 bytes long, not 1026$"),
        (lambda: locks.lock("k", max_hold=-1), "^k: max_hold must be"),
        (lambda: locks.lock("k", auto_extend=1), "^k: auto_extend must be True or False"),
        (lambda: locks.lock("k", on_lost="x"), "^k: on_lost must be a function"),
        (lambda: locks.lock("k", tll=1), "^k: there is no option 'tll'"),
        (lambda: locks.try_lock("k", wait=1), "^k: there is no option 'wait' where a lock is not waited for"),
        (lambda: locks.lock("k", holder="a b"), "^k: holder must be 1 to 64 letters, digits"),
        (lambda: locks.lock(7), "^key must be a str or bytes, not int"),
        (lambda: locks.lock("\udc80"), "^key cannot be sent as UTF-8"),
        (lambda: locks.once("k", min_hold=0), "^min_hold must be"),
        (lambda: locks.semaphore("k", 0), "^limit must be an integer from 1 to 65535, not 0$"),
        (lambda: locks.election("k").campaign("v" * 1003), "^k: value must be at most 1002 bytes long"),
        (lambda: kind("localhost:6379"), "^the address must begin with"),
        (lambda: kind("redis://me:secret@ho st:port"), "^the address cannot be read: (?!.*secret)"),
        (lambda: kind("redis://a:1,redis://b:2"), several),
        (lambda: kind("redis://me:secret@a:1,b:2/0"), several),
        (lambda: kind("me:secret@a:1,b:2"), several),
        (lambda: kind("redis://me:secret@a redis://me:secret@b"), several),
        (lambda: kind(["redis://a:1", "redis://b:2"]), several),
        (lambda: kind("redis+cluster://a"), one),
        (lambda: kind(redis.sentinel.Sentinel([("localhost", 1)]).master_for("m")), one),  # type: ignore[no-untyped-call]
        (lambda: kind(redis.asyncio.RedisCluster(host="localhost")), one),
        (lambda: kind("redis://localhost", ttl=-1), "^ttl must be"),
        (lambda: kind(7), "^the address must be a URL"),
    ]
    for call, expected in cases:
        with pytest.raises(BadArgument, match=expected) as refused:
            await come(call())
        assert isinstance(refused.value, ValueError)
    for address in ("redis://me:a,b@localhost", "unix:///tmp/a,b.sock"):
        await come(kind(address).close())


async def test_a_client_of_redis_py_is_an_address(on_node: Bench, a_node: Node, key: str) -> None:
    for client in (redis.Redis(unix_socket_path=a_node.path), redis.asyncio.Redis(unix_socket_path=a_node.path)):
        async with on_node.locks(client).lock(key) as lock:
            assert lock.is_valid


def test_a_machine_that_has_vanished_is_noticed() -> None:
    connection: Any = Address("redis://localhost").connection(1)
    assert connection.socket_keepalive
    assert connection.socket_keepalive_options == {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


async def test_close_leaves_nothing(bench: Bench, key: str) -> None:
    locks, held, awaited = bench.locks(), f"{key}:held", f"{key}:awaited"
    other = await bench.locks().lock(awaited)
    lock = await locks.lock(held)
    waits = asyncio.ensure_future(locks.lock(awaited))
    await bench.outside.waiters(awaited, 1)
    await locks.close()
    with pytest.raises(Closed):
        await soon(waits)
    loss = await soon(lock.lost.wait())
    assert loss is not None
    assert loss.reason == "closed"
    assert bench.outside.users(held)[0] == 0
    await bench.outside.waiters(awaited, 0)
    assert not await lock.release()
    with pytest.raises(Closed):
        await locks.lock(held)
    await locks.close()
    await other.release()


async def test_close_leaves_nothing_of_its_waits(bench: Bench, key: str) -> None:
    locks = bench.locks(ttl=60)
    lock = await locks.lock(key)
    waits = [asyncio.ensure_future(locks.lock(key)) for _ in range(50)]
    await bench.outside.waiters(key, 50)
    await soon(locks.close())
    assert bench.outside.users(key) == (0, 0)
    for ended in await soon(asyncio.gather(*waits, return_exceptions=True)):
        assert isinstance(ended, Closed)
    assert not lock.is_valid


async def test_close_leaves_nothing_of_a_grant_on_the_way(bench: Bench, key: str) -> None:
    for steps in range(12):
        locks = bench.locks(ttl=60)
        holder = await bench.locks(ttl=60).lock(key)
        waits = [asyncio.ensure_future(locks.lock(key)) for _ in range(5)]
        await bench.outside.waiters(key, 5)
        released = asyncio.ensure_future(holder.release())
        for _ in range(steps):
            await asyncio.sleep(0)
        await soon(asyncio.gather(released, locks.close()))
        assert bench.outside.users(key) == (0, 0)
        # One of them may have had the lock before.
        ended = await soon(asyncio.gather(*waits, return_exceptions=True))
        assert sum(not isinstance(one, Closed) for one in ended) <= 1
