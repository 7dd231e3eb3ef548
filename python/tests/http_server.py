"""A real HTTP server with an ASGI application, on a thread of its own."""

from __future__ import annotations

import json
import threading
from http.client import HTTPConnection
from typing import Any

import uvicorn

from waiting import PATIENCE, at_last


class HttpServer:
    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off", ws="none", http="h11", loop="asyncio")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        at_last("the HTTP server listens", lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def ask(self, method: str, path: str, *tokens: str) -> tuple[int, Any]:
        """Returns status and body of an answer, to a request with these headers ``Fencing-Token``."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path)
            for token in tokens:
                connection.putheader("Fencing-Token", token)
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body and answer.status < 500 else None
        finally:
            connection.close()

    def end(self) -> None:
        # At once, also where a failed test left a request unanswered.
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
