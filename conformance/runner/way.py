"""A proxy between a client library and the server. It delays requests, loses answers, answers in the server's place,
and breaks connections."""

import socket
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .resp import Gone, Reply, parsed


def boot_ms() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


@dataclass
class Said:
    """A request that passed the proxy, and its answer."""

    words: list[bytes]
    asked: float
    answered: float | None = None
    reply: Reply | None = None

    def is_(self, word: str) -> bool:
        return bool(self.words) and self.words[0].upper().startswith(word.encode())


class Way:
    """A proxy: listens on its own socket, and passes on what clients and the server send."""

    def __init__(self, to: str):
        self.to = urlsplit(to).path
        self.folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self.address = f"unix://{self.folder.name}/way.sock"
        self.changed = threading.Condition()
        self.log: list[Said] = []
        self.holds: str | None = None
        self.holds_answers: str | None = None
        self.loses: str | None = None
        self.says: list[list] = []  # word, bytes, how often
        self.refuses = False
        self.held = 0
        self.links: list[Link] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(Path(self.folder.name) / "way.sock"))
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self.to)
                except OSError:
                    client.close()
                    continue
            except OSError:
                return
            self.links.append(Link(self, client, server))

    def cut(self) -> None:
        """Breaks all connections."""
        for link in self.links:
            link.close()
        self.links = []

    def let_go(self) -> None:
        """Passes on everything that it has delayed."""
        with self.changed:
            self.holds = self.holds_answers = None
            self.changed.notify_all()

    def end(self) -> None:
        self.let_go()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.cut()
        self.folder.cleanup()

    def said(self, word: str) -> list[Said]:
        return [said for said in list(self.log) if said.is_(word)]


class Link:
    """A client's connection to the proxy, and the proxy's connection to the server."""

    def __init__(self, way: Way, client: socket.socket, server: socket.socket):
        self.way, self.client, self.server = way, client, server
        self.due: deque[Said] = deque()
        self.told = threading.Lock()
        for run in (self._requests, self._answers):
            threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        for one in (self.client, self.server):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _requests(self) -> None:
        buffer = b""
        while data := received(self.client):
            buffer += data
            while (found := parsed(buffer)) is not None:
                request, end = found
                raw, buffer = buffer[:end], buffer[end:]
                self._request([word.value for word in request.value], raw)
        # By now the delayed requests have reached the server, though the client has gone.
        shut(self.server)

    def _request(self, words: list[bytes], raw: bytes) -> None:
        way, said = self.way, Said(words, boot_ms())
        with way.changed:
            way.log.append(said)
            if way.holds and said.is_(way.holds):
                way.held += 1
                way.changed.wait_for(lambda: not way.holds)
                way.held -= 1
            instead = next((one for one in way.says if said.is_(one[0]) and one[2] != 0), None)
            if instead:
                instead[2] -= 1
        if instead:
            # The server does not receive this request. Answers to earlier requests come first.
            while self.due:
                time.sleep(0.001)
            said.answered = boot_ms()
            send(self.client, instead[1])
            return
        self.due.append(said)
        send(self.server, raw)

    def _answers(self) -> None:
        buffer = b""
        while data := received(self.server):
            buffer += data
            try:
                while (found := parsed(buffer)) is not None:
                    reply, end = found
                    raw, buffer = buffer[:end], buffer[end:]
                    if not self._answer(reply, raw):
                        return
            except Gone:
                break
        self.close()

    def _answer(self, reply: Reply, raw: bytes) -> bool:
        if reply.kind == "push":
            send(self.client, raw)
            return True
        way, said = self.way, self.due[0] if self.due else Said([], 0)
        with way.changed:
            if way.holds_answers and said.is_(way.holds_answers):
                way.held += 1
                way.changed.wait_for(lambda: not way.holds_answers)
                way.held -= 1
            is_lost = bool(way.loses and said.is_(way.loses))
            if is_lost:
                way.loses = None
        said.answered, said.reply = boot_ms(), reply
        if is_lost:
            self.close()
            return False
        send(self.client, raw)
        if self.due:
            self.due.popleft()
        return True


def received(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except OSError:
        return b""


def send(one: socket.socket, data: bytes) -> None:
    try:
        one.sendall(data)
    except OSError:
        pass


def shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        pass
