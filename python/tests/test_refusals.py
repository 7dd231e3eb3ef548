"""Refusals of the server are exceptions of their own kinds, which say what to do."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from conftest import Bench
from palisade_client import Guarded, Misconfigured, PalisadeError, ServerError
from servers import Node, free_ports
from waiting import soon


async def test_a_guarded_server_says_for_how_long_and_a_wait_outlasts_it(own: tuple[Node, Bench], key: str) -> None:
    node, bench = own
    locks = bench.locks()
    node.outside.say("LOCK.GUARD", "ARM", 60_000)
    with pytest.raises(Guarded, match=rf"^{key}: GUARDED \d+ this node may have forgotten") as told:
        await locks.try_lock(key)
    assert 0 < told.value.retry_after <= 60
    with pytest.raises(Guarded):
        await locks.lock(key, wait=0.05)
    waits = asyncio.ensure_future(locks.lock(key))
    await node.outside.waiters(key, 1)
    node.outside.say("LOCK.GUARD", "LIFT")
    assert await (await soon(waits)).release()


async def test_what_is_wrong_otherwise_has_the_word_of_the_server(on_node: Bench, key: str) -> None:
    locks = on_node.locks()
    on_node.outside.say("SET", key, "a string")
    with pytest.raises(ServerError) as told:
        await locks.lock(key)
    assert told.value.code == "WRONGTYPE"
    with pytest.raises(ServerError, match=r"ttl must be .* 60000 .*lock\.max-ttl"):
        await locks.lock(f"{key}:2", ttl=60.001)


async def test_who_may_not_do_what(own: tuple[Node, Bench]) -> None:
    node, bench = own
    [port] = free_ports(1)
    node.outside.say("CONFIG", "SET", "port", port)
    node.outside.say("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@connection", "+LOCK.INFO")
    node.outside.say("CONFIG", "SET", "requirepass", "p@ss")
    cases = {
        f"redis://127.0.0.1:{port}": "wants a password: .*NOAUTH",
        f"redis://reader:wrong@127.0.0.1:{port}": "refuses the user or the password.*WRONGPASS",
        f"redis://reader:secret@127.0.0.1:{port}": r"docs/acl\.md has the rules.*NOPERM",
        f"unix://reader:wrong@{node.path}": "refuses the user or the password.*WRONGPASS",
    }
    for address, expected in cases.items():
        with pytest.raises(Misconfigured, match=expected) as told:
            await bench.locks(address).lock("k")
        assert isinstance(told.value, PalisadeError)
        assert "secret" not in str(told.value)
    for address in (f"redis://:{quote('p@ss')}@127.0.0.1:{port}", f"unix://:{quote('p@ss')}@{node.path}?db=1"):
        async with bench.locks(address).lock("k") as lock:
            assert lock.is_valid


async def test_a_server_without_the_module_is_told_of_as_such(face: str) -> None:
    with Node(module=False) as node:
        bench = Bench(node, face)
        with pytest.raises(Misconfigured, match="load the Palisade module there"):
            await bench.locks().lock("k")
        await bench.end()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b":9007199254740993\r\n", "9007199254740993 where an integer below 2"),
        (b":-5\r\n", "-5 where an integer"),
        (b"$2\r\nhi\r\n", "b'hi' where an integer"),
        (b"*2\r\n:9007199254740993\r\n:0\r\n", "where an integer"),
        (b"*1\r\n:1\r\n", "to LOCK.ACQUIRE"),
    ],
)
async def test_an_answer_that_no_lock_server_gives_is_refused_and_given_back(face: str, reply: bytes, expected: str) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                count = int((await reader.readline()).strip()[1:] or 0)
                words = []
                for _ in range(count):
                    await reader.readline()
                    words.append((await reader.readline()).strip())
                if not words:
                    return
                heard.append(words[0])
                writer.write(reply if words[0] == b"LOCK.ACQUIRE" else b"+OK\r\n" if words[0] == b"CLIENT" else b":0\r\n")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    from faces import palisade_of

    locks = palisade_of(face, f"redis://127.0.0.1:{port}")
    with pytest.raises(PalisadeError, match=expected):
        await soon(locks.lock("k"))
    await soon(locks.close())
    assert b"LOCK.RELEASE" in heard
    server.close()
