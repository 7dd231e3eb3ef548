"""Connections break, answers are lost, requests come late, servers restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Bench
from palisade_client import Closed, LockLost, NotAcquired, Released, ServerError, Unavailable
from servers import Node, free_ports
from waiting import eventually, passed, soon
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
    # The repetition is answered that nobody holds it: the first request released it, or it ended before.
    assert await soon(lock.release()) is Released.UNKNOWN
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
    # This also ends the wait of a thread.
    closing = asyncio.ensure_future(locks.close())
    with pytest.raises(Exception, match="closed"):
        await soon(taking)
    if first is not None:
        await first.release()
    way.let_go()
    await soon(closing)
    await on_node.outside.free(key)


async def test_a_request_without_an_answer_is_given_back_though_a_later_one_is_refused(on_node: Bench, way: FaultyWay, key: str) -> None:
    first = await on_node.locks().lock(key)
    way.hold(b"LOCK.ACQUIRE")
    taking = asyncio.ensure_future(on_node.locks(way.url, ttl=60, answer_within=0.5).lock(key, wait=1))
    await eventually("the request is on its way", lambda: way.held == 1)
    way.hold(b"LOCK.RELEASE")
    with pytest.raises(NotAcquired):
        await soon(taking)
    await eventually("the release is on its way", lambda: way.held > 1)
    await first.release()
    way.let_first_go()
    await eventually("the request is granted late", lambda: on_node.outside.users(key) == (1, 0))
    way.let_go()
    await on_node.outside.free(key)


async def test_a_connection_on_which_a_wait_was_given_up_is_closed(
    on_node: Bench, way: FaultyWay, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the longest wait of one request, another follows.
    monkeypatch.setattr("palisade_client._acquiring.DAY", 0.1)
    locks = on_node.locks(way.url, answer_within=0.3)
    first = await on_node.locks().lock(key)
    way.hold(b"WAIT")
    waits = asyncio.ensure_future(locks.lock(key))
    await eventually("another request waits", lambda: way.held > 1)
    await eventually("the connection of the first is closed", lambda: way.closed > 0 or waits.done())
    assert not waits.done()
    closing = asyncio.ensure_future(locks.close())
    with pytest.raises(Closed):
        await soon(waits)
    await soon(closing)
    assert await first.release()


async def test_a_server_that_is_not_there_is_told_of_at_once(face: str, on_node: Bench) -> None:
    [port] = free_ports(1)
    locks = on_node.locks(f"redis://user:secret@127.0.0.1:{port}")
    with pytest.raises(Unavailable, match=rf"^k: redis://127\.0\.0\.1:{port}: .*[Cc]onnect") as told:
        await soon(locks.lock("k", wait=0))
    assert "secret" not in str(told.value)
    with pytest.raises(Unavailable, match=r"^k: unix:///nowhere: "):
        await soon(on_node.locks("unix:///nowhere").try_lock("k"))


async def test_a_server_is_not_sent_later_what_was_asked_for_meanwhile(own: tuple[Node, Bench]) -> None:
    node, bench = own
    locks = bench.locks()
    await (await locks.lock("warm")).release()
    node.kill()
    with pytest.raises(Unavailable):
        await soon(locks.lock("late", ttl=60, wait=0))
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


async def test_a_server_that_is_away_is_waited_for_until_the_wait_ends(own: tuple[Node, Bench]) -> None:
    node, bench = own
    node.kill()
    with pytest.raises(Unavailable, match=r"^k: unix://"):
        await soon(bench.locks().lock("k", wait=0.3))
    waits = asyncio.ensure_future(bench.locks().lock("k", wait=60))
    await passed(0.5)
    assert not waits.done()
    node.start()
    node.lift()
    assert await (await soon(waits)).release()


async def test_a_server_that_hangs_ends_no_wait_before_its_time_and_holds_none_up(own: tuple[Node, Bench]) -> None:
    node, bench = own
    locks = bench.locks(answer_within=0.3)
    await (await locks.lock("warm")).release()
    # Its connection is kept for the next wait.
    first = await locks.lock("k")
    waits = asyncio.ensure_future(locks.lock("k"))
    await node.outside.waiters("k", 1)
    await first.release()
    await (await soon(waits)).release()
    node.signal(signal.SIGSTOP)
    with pytest.raises(Unavailable, match=r"^k: unix:.* did not answer within"):
        await soon(locks.lock("k", wait=0.5))
    waits = asyncio.ensure_future(locks.lock("k", wait=60))
    await passed(1)
    assert not waits.done()
    node.signal(signal.SIGCONT)
    assert await (await soon(waits)).release()


async def test_what_does_not_pass_by_itself_ends_a_wait_at_once(on_node: Bench, key: str) -> None:
    on_node.outside.say("SET", key, "a string")
    for ttl in (1, 61):
        with pytest.raises(ServerError, match=rf"^{key}:"):
            await soon(on_node.locks().lock(key, ttl=ttl, wait=3600))


async def test_the_end_of_a_block_does_not_need_the_server(own: tuple[Node, Bench], caplog: pytest.LogCaptureFixture) -> None:
    node, bench = own
    locks = bench.locks(ttl=60)
    inside, alone = await locks.lock("k"), await locks.lock("alone")
    async with inside:
        node.kill()
    assert await alone.release() is Released.UNKNOWN
    assert "k: whether the lock was given back is not known: unix:" in caplog.text


async def test_a_lock_that_was_overwritten_was_not_held(on_node: Bench, key: str) -> None:
    lock, inside = await on_node.locks().lock(key, ttl=60), await on_node.locks().lock(f"{key}:2", ttl=60)
    for name in (key, f"{key}:2"):
        on_node.outside.say("SET", name, "a string")
    assert await lock.release() is Released.NOT_HELD
    with pytest.raises(LockLost, match=rf"^{key}:2: the lock is lost"):
        async with inside:
            pass


async def test_a_leader_proclaims_again_what_the_server_did_not_answer(way: FaultyWay, locks: Any, key: str) -> None:
    election = locks.election(key)
    way.hold(b"LOCK.NOTE")
    campaigning = asyncio.ensure_future(election.campaign("10.0.0.1", wait=60))
    await eventually("it proclaims again", lambda: way.held_for_word == 2 or campaigning.done())
    way.let_go()
    async with await soon(campaigning):
        assert (await election.leader()).value == b"10.0.0.1"
