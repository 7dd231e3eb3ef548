"""Real servers for the tests: one node with the module, or an agent with five nodes behind it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from waiting import at_last, eventually

ROOT = Path(__file__).resolve().parents[2]
SERVER = os.environ.get("PALISADE_SERVER", "redis-server")
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
MODULE = ROOT / os.environ.get("PALISADE_MODULE", str(TARGET / "debug/libpalisade.so"))
PROGRAM = ROOT / os.environ.get("PALISADE_PROGRAM", str(TARGET / "debug/palisade"))


class Outside:
    """Sends raw commands, to inspect locks from outside and to act as an operator."""

    def __init__(self, path: str, is_agent: bool = False) -> None:
        self._is_agent = is_agent
        self.client = redis.Redis(unix_socket_path=path, protocol=3, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def say(self, *words: str | bytes | int) -> Any:
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    def info(self, key: str) -> dict[str, Any] | None:
        """Returns the fields of LOCK.INFO; ``None`` if nobody holds the lock."""
        return cast("dict[str, Any] | None", self.say("LOCK.INFO", key))

    def users(self, key: str) -> tuple[int, int]:
        """Returns the numbers of holders and waiters of the lock."""
        info = self.say("LOCK.INFO", key, "WAITERS", 1000) or {}
        # An agent stands in the queues of its nodes once, for all of its waiters.
        waiting = self.say("INFO", "palisade").get("waiting") if self._is_agent else None
        return info.get("holders", 0), info.get("waiters", 0) if waiting is None else waiting

    async def waiters(self, key: str, expected: int) -> None:
        """Waits until this many are in the queue."""
        await eventually(f"{expected} wait for {key}", lambda: self.users(key)[1] == expected)

    async def free(self, key: str) -> None:
        """Waits until nobody holds the lock, and nobody waits for it."""
        await eventually(f"{key} is free", lambda: self.users(key) == (0, 0))

    def acquires(self) -> int:
        """Returns how many requests for a lock the server has received since its start."""
        counts = {name.lower(): count for name, count in self.say("INFO", "commandstats").items()}
        return int(counts.get("cmdstat_lock.acquire", {"calls": 0})["calls"])

    def kill_connections(self) -> None:
        """Closes all connections to the server but this one."""
        self.say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


class Node:
    """One server with the module, on a Unix socket."""

    def __init__(self, *more: str, module: bool = True, port: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="palisade-python-"))
        self.path = str(self.folder / "node.sock")
        self.url = f"unix://{self.path}"
        self._arguments = [SERVER, "--unixsocket", self.path, "--save", "", "--dir", str(self.folder), "--port", str(port)]
        self._arguments += (["--loadmodule", str(MODULE)] if module else []) + list(more)
        self.outside = Outside(self.path)
        self.start()
        if module:
            self.lift()

    def start(self) -> None:
        """Starts the server, for the first time or again."""
        self.process = subprocess.Popen(self._arguments, stdout=subprocess.DEVNULL, cwd=self.folder)
        at_last("the server answers", lambda: _succeeds(lambda: self.outside.say("PING")))

    def lift(self) -> None:
        """Lifts the guard: nobody holds a lock of a new server."""
        at_last("the guard is lifted", lambda: _succeeds(lambda: self.outside.say("LOCK.GUARD", "LIFT")))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends the server as ``kill -9`` does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.outside.client.close()
        self.kill()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Agent:
    """An agent, with five nodes behind it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="palisade-python-"))
        self.path = str(self.folder / "agent.sock")
        self.url = f"unix://{self.path}"
        ports = free_ports(5)
        self.nodes = [Node(port=port) for port in ports]
        nodes = ",".join(f"redis://127.0.0.1:{port}" for port in ports)
        # Five nodes may share one core with other work, so they get time to answer.
        arguments = [str(PROGRAM), "agent", "--listen", self.url, "--nodes", nodes, "--node-timeout", "3s"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
        self.outside = Outside(self.path, is_agent=True)
        at_last("the agent answers", lambda: _succeeds(lambda: self.outside.say("LOCK.NODE")))

    def end(self) -> None:
        self.outside.client.close()
        self.process.kill()
        self.process.wait()
        for node in self.nodes:
            node.end()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _succeeds(work: Callable[[], Any]) -> bool:
    try:
        work()
    except RedisError:
        # The server does not listen yet, or its state file is not written yet.
        return False
    return True
