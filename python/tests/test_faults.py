"""Connections break, answers are lost, requests come late, servers restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Bench
from palisade import Unavailable
from servers import Node, free_ports
from waiting import eventually, soon
from way import FaultyWay


@pytest.fixture
def way(a_node: Node) -> Iterator[FaultyWay]:
    way = FaultyWay(a_node.path)
    yield way
    way.end()


@pytest.fixture
def locks(on_node: Bench, way: FaultyWay) -> Any:
    return on_node.locks(way.url, ttl=60)


async def test_a_grant_whose_answer_is_lost_is_one(on_node: Bench, way: FaultyWay, locks: Any, key: str) -> None:
    way.lose_answer_to(b"LOCK.ACQUIRE")
    lock = await soon(locks.lock(key))
    assert way.lost == 1
    info = on_node.outside.info(key)
    assert info is not None
    assert info["token"] == lock.token
    assert await lock.release()


async def test_a_grant_that_was_waited_for_is_one_too(on_node: Bench, way: FaultyWay, locks: Any, key: str) -> None:
    first = await on_node.locks().lock(key)
    way.lose_answer_to(b"WAIT")
    waits = asyncio.ensure_future(locks.lock(key))
    await on_node.outside.waiters(key, 1)
    await first.release()
    lock = await soon(waits)
    assert way.lost == 1
    info = on_node.outside.info(key)
    assert info is not None
    assert info["token"] == lock.token
    assert await lock.release()


async def test_an_extension_and_a_release_are_repeated(on_node: Bench, way: FaultyWay, locks: Any, key: str) -> None:
    lock = await locks.lock(key, auto_extend=False)
    way.lose_answer_to(b"LOCK.EXTEND")
    await soon(lock.extend())
    way.lose_answer_to(b"LOCK.RELEASE")
    # The repetition is answered that nobody holds it.
    assert await soon(lock.release())
    await on_node.outside.free(key)
    way.lose_answer_to(b"LOCK.RELEASE")
    async with locks.lock(key):
        pass
    assert way.lost == 3


async def test_a_grant_that_is_heard_of_late_is_asked_for_a_lease_from_now_on(on_node: Bench, way: FaultyWay, key: str) -> None:
    first = await on_node.locks().lock(key)
    asked = on_node.outside.acquires()
    waits = asyncio.ensure_future(on_node.locks(way.url).lock(key, ttl=4, auto_extend=False))
    await on_node.outside.waiters(key, 1)
    way.answers.clear()
    await first.release()
    await eventually("most of its lease has gone", lambda: (on_node.outside.info(key) or {"ttl": 0})["ttl"] < 1_800)
    way.answers.set()
    lock = await soon(waits)
    info = on_node.outside.info(key)
    assert info is not None
    assert (info["token"], info["owner"]) == (lock.token, lock.owner)
    assert on_node.outside.acquires() - asked >= 3, "at first, in the queue, and with the grant"
    assert await lock.release()
    await on_node.outside.free(key)


async def test_a_connection_that_is_cut_in_the_middle_of_a_wait_is_replaced(on_node: Bench, way: FaultyWay, locks: Any, key: str) -> None:
    first = await on_node.locks().lock(key)
    waits = asyncio.ensure_future(locks.lock(key))
    for _ in range(3):
        await on_node.outside.waiters(key, 1)
        way.cut()
        await on_node.outside.waiters(key, 0)
    await on_node.outside.waiters(key, 1)
    await first.release()
    lock = await soon(waits)
    assert lock.token > first.token
    assert await lock.release()
    await on_node.outside.free(key)


@pytest.mark.parametrize("word", [b"WAIT", b"LOCK.ACQUIRE"])
async def test_a_request_that_arrives_after_it_was_given_up_leaves_nothing(
    on_node: Bench, way: FaultyWay, locks: Any, key: str, word: bytes
) -> None:
    first = await on_node.locks().lock(key) if word == b"WAIT" else None
    way.hold(word)
    taking = asyncio.ensure_future(locks.lock(key))
    await eventually("the request is on its way", lambda: way.held > 0)
    # Ends the wait of a thread as well.
    closing = asyncio.ensure_future(locks.close())
    with pytest.raises(Exception, match="closed"):
        await soon(taking)
    if first is not None:
        await first.release()
    way.let_go()
    await soon(closing)
    await on_node.outside.free(key)


async def test_a_server_that_is_not_there_is_told_of_at_once(face: str, on_node: Bench) -> None:
    [port] = free_ports(1)
    locks = on_node.locks(f"redis://user:secret@127.0.0.1:{port}")
    with pytest.raises(Unavailable, match=rf"^redis://127\.0\.0\.1:{port}: .*[Cc]onnect") as told:
        await soon(locks.lock("k"))
    assert "secret" not in str(told.value)
    with pytest.raises(Unavailable, match=r"^unix:///nowhere: "):
        await soon(on_node.locks("unix:///nowhere").lock("k"))


async def test_a_server_is_not_sent_later_what_was_asked_for_meanwhile(own: tuple[Node, Bench]) -> None:
    node, bench = own
    locks = bench.locks()
    await (await locks.lock("warm")).release()
    node.kill()
    with pytest.raises(Unavailable):
        await soon(locks.lock("late", ttl=60))
    node.start()
    node.lift()
    await (await locks.lock("later")).release()
    assert node.outside.users("late") == (0, 0)
    assert node.outside.acquires() == 1, "it has heard of one request since, the last"


async def test_a_server_is_waited_for_by_who_was_in_its_queue_when_it_went(own: tuple[Node, Bench]) -> None:
    node, bench = own
    locks = bench.locks()
    first = await locks.lock("k", ttl=60)
    waits = asyncio.ensure_future(locks.lock("k"))
    await node.outside.waiters("k", 1)
    node.kill()
    node.start()
    node.lift()
    lock = await soon(waits)
    assert lock.token > first.token
    assert await lock.release()
