"""The header and the middleware for fencing tokens, on a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from http_server import HttpServer
from palisade_client import BadArgument, Palisade
from palisade_client.asgi import FencingMiddleware, Receive, Scope, Send
from palisade_client.fencing import Grant, MemoryFence
from servers import Node
from waiting import at_last


class Shop:
    """A service with one fenced resource, ``/prices``, that notes whose requests reach it."""

    def __init__(self) -> None:
        self.reached: list[int | None] = []
        self.arrived = 0
        self.hold_up: set[int] = set()
        fence = Arrivals(self)
        self.app = FencingMiddleware(self.serve, fence, lambda scope: "prices" if scope["path"] == "/prices" else None)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        grant = scope.get("fencing.grant")
        token = None if grant is None else grant.token
        self.reached.append(token)
        while token in self.hold_up:
            await asyncio.sleep(0.001)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(token).encode()})


class Arrivals(MemoryFence):
    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self._shop = shop

    def passing(self, resource: str, grant: Grant) -> Any:
        self._shop.arrived += 1
        return super().passing(resource, grant)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def http(shop: Shop) -> Iterator[HttpServer]:
    server = HttpServer(shop.app)
    yield server
    shop.hold_up = set()
    server.end()


def test_a_change_without_a_token_is_refused_and_reading_is_not(shop: Shop, http: HttpServer) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "BREW"):
        status, problem = http.ask(method, "/prices")
        assert (status, problem["status"]) == (428, 428)
    assert shop.reached == []
    assert http.ask("GET", "/prices") == (200, None)
    assert http.ask("POST", "/elsewhere") == (200, None)


def test_an_old_token_is_refused_with_the_one_that_was_seen(shop: Shop, http: HttpServer) -> None:
    assert http.ask("PUT", "/prices", '"34"') == (200, 34)
    assert http.ask("PUT", "/prices", '"34"') == (200, 34)
    refused = {"status": 412, "title": "the token 33 is older than 34", "seen": 34}
    assert http.ask("PUT", "/prices", '"33"') == (412, refused)
    assert http.ask("PUT", "/prices", '"35"') == (200, 35)
    assert shop.reached == [34, 34, 35]


def test_a_late_writer_does_not_change_what_a_newer_reader_has_read(shop: Shop, http: HttpServer) -> None:
    assert http.ask("GET", "/prices", '"34";shared') == (200, 34)
    assert http.ask("GET", "/prices", '"33"; shared')[0] == 200
    assert http.ask("PUT", "/prices", '"33"')[0] == 412
    status, problem = http.ask("PUT", "/prices", '"35";shared')
    assert (status, problem["title"]) == (400, "the holder of a shared lock reads, and changes nothing")


def test_permits_are_compared_by_number(http: HttpServer) -> None:
    assert http.ask("PUT", "/prices", '"34";permit=1')[0] == 200
    assert http.ask("PUT", "/prices", '"33";permit=2')[0] == 200
    assert http.ask("PUT", "/prices", '"33";permit=1')[0] == 412
    assert http.ask("PUT", "/prices", '"33"')[0] == 412


WRONG = ["33", "", '""', '"033"', '"-1"', '"x"', '"9007199254740992"', '"33";write', '"33";permit', '"33";permit=0', '"33";permit=65536']


@pytest.mark.parametrize("value", [*WRONG, '"33", "34"', "'33'", '"33";shared;permit=1', '"٣"'])
def test_a_header_of_another_form_is_refused(shop: Shop, http: HttpServer, value: str) -> None:
    if value.isascii():
        assert http.ask("PUT", "/prices", value)[0] == 400
    with pytest.raises(BadArgument):
        Grant.of_header(value)
    assert shop.reached == []


def test_two_headers_are_refused(shop: Shop, http: HttpServer) -> None:
    assert http.ask("PUT", "/prices", '"33"', '"34"')[0] == 400
    assert shop.reached == []


@pytest.mark.parametrize("grant", [Grant(1), Grant(2**53 - 1, "shared"), Grant(1795234602884304, "permit", 65535)])
def test_a_grant_is_read_from_the_header_that_it_makes(grant: Grant) -> None:
    assert Grant.of_header(grant.header) == grant


def test_a_newer_holder_waits_until_the_older_ones_request_is_done(shop: Shop, http: HttpServer) -> None:
    shop.hold_up = {33}
    answers: dict[int, int] = {}

    def ask(token: int) -> None:
        answers[token] = http.ask("PUT", "/prices", f'"{token}"')[0]

    older, newer = (threading.Thread(target=ask, args=(token,), daemon=True) for token in (33, 34))
    older.start()
    at_last("the older one is served", lambda: shop.reached == [33])
    newer.start()
    at_last("the newer one has arrived", lambda: shop.arrived == 2)
    # A reader without a token is served meanwhile, so the server had time for the newer one.
    assert http.ask("GET", "/prices") == (200, None)
    assert shop.reached == [33, None]
    shop.hold_up = set()
    older.join()
    newer.join()
    assert shop.reached == [33, None, 34]
    assert answers == {33: 200, 34: 200}
    assert http.ask("PUT", "/prices", '"33"')[0] == 412


def test_an_error_of_the_handler_ends_the_pass(shop: Shop, http: HttpServer) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError

    shop.app._app = fail
    assert http.ask("PUT", "/prices", '"33"')[0] == 500
    shop.app._app = shop.serve
    assert http.ask("PUT", "/prices", '"34"')[0] == 200


def test_a_holder_whose_lease_ended_is_refused_after_the_next_one(shop: Shop, http: HttpServer, a_node: Node, key: str) -> None:
    with Palisade(a_node.url) as locks:
        older = locks.lock(key, ttl=0.2, auto_extend=False)
        newer = locks.lock(key)
        assert http.ask("PUT", "/prices", Grant(newer.token).header)[0] == 200
        assert http.ask("PUT", "/prices", Grant(older.token).header)[0] == 412
        newer.release()
    assert shop.reached == [newer.token]
