"""Fixtures: servers with locks, and clients of them that are closed at the end."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from faces import palisade_of
from servers import Agent, Node, Outside

_keys = itertools.count(1)


@pytest.fixture(scope="session")
def a_node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture(scope="session")
def an_agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.fixture(scope="session", params=["node", "agent"])
def server(request: pytest.FixtureRequest) -> Node | Agent:
    """A node, or an agent, for tests that do not harm it."""
    found: Node | Agent = request.getfixturevalue("a_node" if request.param == "node" else "an_agent")
    return found


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> str:
    """The API that the test uses: the one for threads, or the one for asyncio."""
    return str(request.param)


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"key:{next(_keys)}"


class Bench:
    """Clients of the locks of one server."""

    def __init__(self, server: Node | Agent, face: str) -> None:
        self.url = server.url
        self.outside: Outside = server.outside
        self._face = face
        self._clients: list[Any] = []

    def locks(self, address: Any = None, **options: Any) -> Any:
        client = palisade_of(self._face, address or self.url, **options)
        self._clients.append(client)
        return client

    async def end(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture
async def bench(server: Node | Agent, face: str) -> AsyncIterator[Bench]:
    """Clients on a node, and on an agent."""
    bench = Bench(server, face)
    yield bench
    await bench.end()


@pytest.fixture
async def on_node(a_node: Node, face: str) -> AsyncIterator[Bench]:
    """Clients on a node alone: the test needs no agent, or does what an agent does not offer."""
    bench = Bench(a_node, face)
    yield bench
    await bench.end()


@pytest.fixture
async def own(face: str) -> AsyncIterator[tuple[Node, Bench]]:
    """Clients on a node of their own, which the test may harm."""
    with Node() as node:
        bench = Bench(node, face)
        yield node, bench
        await bench.end()
