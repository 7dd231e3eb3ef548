"""A server with one fault: a proxy before a real server, which changes requests or answers."""

import select
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass

from runner.resp import Connection, Gone, Reply, parsed

Words = list[bytes]


@dataclass
class Wrong:
    """A fault of a server."""

    name: str
    # Returns the words to send on to the server, or bytes to answer in place of the server.
    request: "Callable[[Words, Link], Words | bytes] | None" = None
    # Returns the bytes to answer; None for those of the server.
    reply: "Callable[[Words, Reply, Link], bytes | None] | None" = None
    # True if the server does not notice that a client has gone.
    keeps_connections: bool = False


class WrongServer:
    """Listens for clients, and passes on their requests."""

    def __init__(self, to: str, wrong: Wrong):
        self.to, self.wrong = to, wrong
        self.folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self.address = f"unix://{self.folder.name}/wrong.sock"
        self.memory: dict = {}
        self.kept: list[Connection] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{self.folder.name}/wrong.sock")
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                Link(self, client)
            except OSError:
                return

    def end(self) -> None:
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for connection in self.kept:
            connection.close()
        self.folder.cleanup()


class Link:
    """A client's connection. Its requests are answered one after the other."""

    def __init__(self, server: WrongServer, client: socket.socket):
        self.server, self.client, self.memory = server, client, server.memory
        self.upstream = Connection(server.to)
        self.buffer, self.is_resp3 = b"", False
        threading.Thread(target=self._run, daemon=True).start()

    def beside(self, *words: bytes) -> Reply:
        """Asks the server on another connection, and returns the answer."""
        connection = Connection(self.server.to)
        try:
            return connection.say(list(words))
        finally:
            connection.close()

    def _run(self) -> None:
        try:
            while True:
                found = parsed(self.buffer) if self.buffer else None
                if found is None:
                    ready, _, _ = select.select([self.client, self.upstream.socket], [], [])
                    # The server may also close the connection without a request.
                    if self.client not in ready or not self._more():
                        return
                    continue
                request, end = found
                raw, self.buffer = self.buffer[:end], self.buffer[end:]
                words = [word.value for word in request.value] if request.kind == "list" else []
                if words and all(isinstance(word, bytes) for word in words):
                    self._answer(words)
                else:
                    self.upstream.send_bytes(raw)
                    self.client.sendall(self.upstream.hear().raw)
        except (Gone, OSError, ValueError):
            # Bytes that are no request are passed on: the server answers them.
            self._pass_garbage()
        finally:
            self.client.close()
            if self.server.wrong.keeps_connections:
                self.server.kept.append(self.upstream)
            else:
                self.upstream.close()

    def _pass_garbage(self) -> None:
        try:
            if self.buffer:
                self.upstream.send_bytes(self.buffer)
                self.client.sendall(self.upstream.hear().raw)
        except (Gone, OSError):
            pass

    def _answer(self, words: Words) -> None:
        wrong, sent = self.server.wrong, words
        if words[0].upper() == b"HELLO" and words[1:2] == [b"3"]:
            self.is_resp3 = True
        if wrong.request:
            sent = wrong.request(words, self)
        if isinstance(sent, bytes):
            self.client.sendall(sent)
            return
        self.upstream.send(sent)
        while not self.upstream.buffer:
            ready, _, _ = select.select([self.client, self.upstream.socket], [], [])
            if self.upstream.socket in ready:
                break
            if not self._more():
                raise Gone("the client has gone")
        reply = self.upstream.hear(3600)
        changed = wrong.reply(words, reply, self) if wrong.reply else None
        self.client.sendall(reply.raw if changed is None else changed)

    def _more(self) -> bool:
        data = self.client.recv(65536)
        self.buffer += data
        return bool(data)
