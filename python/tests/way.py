"""A path to the server, over TCP, that holds up requests, loses answers and cuts connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class FaultyWay:
    """Forwards between clients and the server, except what a test takes out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._server.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._held: list[Callable[[], object]] = []
        # Number of requests with the word that were held up so far.
        self.held_for_word = 0
        self._held_word: bytes | None = None
        self._lost_word: bytes | None = None
        self._lock = threading.Lock()
        # Set while answers are forwarded to clients.
        self.answers = threading.Event()
        self.answers.set()
        # Number of lost answers.
        self.lost = 0
        # Number of connections that clients have closed.
        self.closed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, word: bytes) -> None:
        """Holds up requests with this word, and what follows them on their connection."""
        self._held_word = word

    @property
    def held(self) -> int:
        """Number of requests held up."""
        return len(self._held)

    def let_first_go(self) -> None:
        """Forwards the first request that was held up; later ones stay."""
        with self._lock:
            self._held.pop(0)()

    def let_go(self) -> None:
        """Forwards what was held up to the server."""
        with self._lock:
            self._held_word = None
            for go_on in self._held:
                go_on()
            self._held.clear()

    def lose_answer_to(self, word: bytes) -> None:
        """Forwards the next request with this word, loses its answer, and breaks its connection."""
        self._lost_word = word

    def cut(self) -> None:
        """Closes all connections, on both sides."""
        with self._lock:
            for open_socket in self._sockets:
                _end(open_socket)
            self._sockets.clear()

    def end(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._path)
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=_Pair(self, client, server).requests, daemon=True).start()

    def takes_out(self, data: bytes, is_behind: bool, send: Callable[[bytes], object]) -> tuple[bool, bool]:
        """Returns whether ``data`` is held up here, like what it ``is_behind``, and whether its answer will be lost."""
        with self._lock:
            is_lost = self._lost_word is not None and self._lost_word in data
            if is_lost:
                self._lost_word = None
            has_word = self._held_word is not None and self._held_word in data
            self.held_for_word += has_word
            is_held = has_word or (is_behind and self._held_word is not None)
            if is_held:
                self._held.append(lambda: send(data))
            return is_held, is_lost


class _Pair:
    def __init__(self, way: FaultyWay, client: socket.socket, server: socket.socket) -> None:
        self._way = way
        self._client = client
        self._server = server
        self._is_lost = False
        self._is_held = False
        threading.Thread(target=self._answers, daemon=True).start()

    def requests(self) -> None:
        for data in _read(self._client):
            self._is_held, is_lost = self._way.takes_out(data, self._is_held, self._send)
            self._is_lost |= is_lost
            if not self._is_held:
                self._send(data)
        self._way.closed += 1
        # What is held up reaches the server even if the client has gone.
        if not self._is_held:
            _end(self._server)

    def _answers(self) -> None:
        for data in _read(self._server):
            self._way.answers.wait()
            if self._is_lost:
                self._way.lost += 1
                break
            try:
                self._client.sendall(data)
            except OSError:
                break
        _end(self._client)

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._server.sendall(data)


def _read(source: socket.socket) -> Iterator[bytes]:
    return iter(lambda: _received(source), b"")


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
