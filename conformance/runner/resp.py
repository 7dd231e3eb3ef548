"""The Redis protocol, RESP2 and RESP3. A library's parser hides which form a reply had, but the scenarios check that
form too."""

import os
import re
import select
import socket
import time
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

# The longest time to wait for anything before the run gives up. It is long enough for a busy machine.
PATIENCE_S = float(os.environ.get("CONFORMANCE_PATIENCE_S", "60"))


class Gone(Exception):
    """The other side has closed the connection, or no longer answers."""


@dataclass
class Reply:
    """A reply: its kind, its value, and its bytes."""

    kind: str  # null, integer, text, list, map, error, boolean, double
    value: object
    raw: bytes = b""

    def __str__(self) -> str:
        match self.kind:
            case "null":
                return "Null"
            case "text":
                return repr(self.value.decode("utf-8", "backslashreplace"))
            case "list":
                return "[" + ", ".join(map(str, self.value)) + "]"
            case "map":
                return "{" + ", ".join(f"{name}: {value}" for name, value in self.value) + "}"
            case "error":
                return f"error {self.value}"
        return str(self.value)


def packed(words: list[bytes]) -> bytes:
    """Returns a command in the form in which it is sent."""
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


KINDS = {b"+": "text", b"$": "text", b"=": "text", b":": "integer", b"-": "error", b"!": "error", b"_": "null",
         b"#": "boolean", b",": "double", b"(": "integer", b"*": "list", b"~": "list", b"%": "map", b">": "push"}


def parsed(data: bytes, at: int = 0) -> tuple[Reply, int] | None:
    """Returns the reply that begins at `at`, and the index of its end; None if the reply is not complete."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    mark, head, begin = data[at:at + 1], data[at + 1:end], at
    kind, at = KINDS.get(mark), end + 2
    if kind is None:
        raise Gone(f"what came is no reply: {data[begin:begin + 80]!r}")
    if mark in b"$*" and head == b"-1":
        return Reply("null", None, data[begin:at]), at
    if mark in b"$=!":
        if len(data) < at + int(head) + 2:
            return None
        text = data[at:at + int(head)]
        at += int(head) + 2
        value = text.decode("utf-8", "backslashreplace") if kind == "error" else text
        return Reply(kind, value[4:] if mark == b"=" else value, data[begin:at]), at
    if kind in ("list", "map", "push"):
        values = []
        for _ in range(int(head) * (2 if kind == "map" else 1)):
            found = parsed(data, at)
            if found is None:
                return None
            value, at = found
            values.append(value)
        pairs = list(zip(values[::2], values[1::2]))
        return Reply(kind, pairs if kind == "map" else values, data[begin:at]), at
    value = {"integer": int, "error": bytes.decode, "boolean": lambda b: b == b"t", "double": float,
             "null": lambda b: None}.get(kind, bytes)(head)
    return Reply(kind, value, data[begin:at]), at


class Connection:
    """A connection. Its answers come in the order of the requests."""

    def __init__(self, address: str, resp: int | None = None):
        self.resp = resp or 2
        self.buffer = b""
        url = urlsplit(address)
        if url.scheme == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE_S)
            self.socket.connect(unquote(url.path))
        elif url.scheme == "redis":
            self.socket = socket.create_connection((url.hostname or "127.0.0.1", url.port or 6379), PATIENCE_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            raise ValueError(f"{address} is no address: redis://[user:password@]host:port, or unix:///path")
        if url.password:
            self.say([b"AUTH", *([unquote(url.username).encode()] if url.username else []), unquote(url.password).encode()])
        if resp is not None:
            self.say([b"HELLO", str(resp).encode()])

    def send(self, words: list[bytes]) -> None:
        self.send_bytes(packed(words))

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as why:
            raise Gone(f"the connection broke: {why}") from why

    def hear(self, patience_s: float = PATIENCE_S) -> Reply:
        """Waits for the next answer, and returns it."""
        by = time.monotonic() + patience_s
        while True:
            found = parsed(self.buffer)
            if found:
                self.buffer = self.buffer[found[1]:]
                return found[0]
            self._more(by - time.monotonic())

    def say(self, words: list[bytes]) -> Reply:
        self.send(words)
        return self.hear()

    def has_answer(self, within_s: float) -> bool:
        """Returns true if an answer comes within this time, or the other side closes the connection."""
        return bool(self.buffer) or bool(select.select([self.socket], [], [], within_s)[0])

    def hear_the_end(self) -> None:
        """Waits until the other side closes the connection. Fails if an answer comes first."""
        try:
            ready = self.buffer or select.select([self.socket], [], [], PATIENCE_S)[0]
            if not ready:
                raise Gone("the connection is open, for longer than a minute")
            data = self.buffer or self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.close()
        if data:
            raise Gone(f"the connection is open, and this came: {data!r}")

    def close(self) -> None:
        self.socket.close()

    def _more(self, seconds: float) -> None:
        if seconds <= 0 or not select.select([self.socket], [], [], seconds)[0]:
            raise Gone("no answer came, for longer than a minute")
        try:
            data = self.socket.recv(65536)
        except OSError as why:
            raise Gone(f"the connection broke: {why}") from why
        if not data:
            raise Gone("the other side hung up")
        self.buffer += data


def info_field(text: bytes, name: str) -> int:
    """Returns the number in a field of INFO."""
    found = re.search(rb"^" + name.encode() + rb":(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else -1
