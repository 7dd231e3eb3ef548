"""A middleware for ASGI that lets nobody change a resource without a current fencing token: docs/fencing.md."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

from .errors import BadArgument, Fenced
from .fencing import Fence, Grant

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SAFE = ("GET", "HEAD", "OPTIONS")


class FencingMiddleware:
    """Refuses requests that change a resource without a token, and all whose token is older than one that was seen.

    ``resource`` returns the name of the fence for a request; ``None`` if it needs none. A handler finds the grant in
    ``scope["fencing.grant"]``, and what the fence yields in ``scope["fencing.passed"]``.
    """

    def __init__(self, app: App, fence: Fence, resource: Callable[[Scope], str | None]) -> None:
        self._app = app
        self._fence = fence
        self._resource = resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        resource = self._resource(scope) if scope["type"] == "http" else None
        values = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"fencing-token"]
        is_safe = scope.get("method") in _SAFE
        if resource is None or (is_safe and not values):
            await self._app(scope, receive, send)
            return
        if not values:
            await _refuse(send, 428, "this resource needs the header Fencing-Token")
            return
        async with AsyncExitStack() as passing:
            try:
                grant = Grant.of_header(",".join(values))
                if grant.mode == "shared" and not is_safe:
                    raise BadArgument("the holder of a shared lock reads, and changes nothing")
                passed = await passing.enter_async_context(self._fence.passing(resource, grant))
            except BadArgument as error:
                await _refuse(send, 400, str(error))
                return
            except Fenced as error:
                await _refuse(send, 412, str(error), seen=error.seen)
                return
            await self._app({**scope, "fencing.grant": grant, "fencing.passed": passed}, receive, send)


async def _refuse(send: Send, status: int, title: str, **more: int) -> None:
    """Sends a problem of RFC 9457."""
    body = json.dumps({"status": status, "title": title, **more}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
