"""Starts servers for the run: nodes with the module, and an agent with five nodes."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .resp import Connection, Gone

START_S = 60.0

# The processes that the run has started and not ended.
RUNNING: "list[Process]" = []


def end_with_the_run(number: int, _frame: object) -> None:
    """Ends all servers when a signal ends the run."""
    for process in list(RUNNING):
        process.end()
    os._exit(128 + number)


for told in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(told, end_with_the_run)


def until(what: str, holds) -> None:
    """Waits until `holds` returns true."""
    by = time.monotonic() + START_S
    while not holds():
        if time.monotonic() > by:
            raise SystemExit(f"waited for a minute, and not yet: {what}")
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A program with its own folder. At the end the process is killed and the folder removed."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.process: subprocess.Popen | None = None
        RUNNING.append(self)

    def start(self, words: list[str]) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)

    def end(self) -> None:
        if self.process:
            self.signal(signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self in RUNNING:
            RUNNING.remove(self)

    def signal(self, number: int) -> None:
        try:
            os.kill(self.process.pid, number)
        except ProcessLookupError:
            pass

    def answers(self, address: str) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"it ended at once: {' '.join(self.process.args)}\n{(self.folder / 'log').read_text()}")
        try:
            connection = Connection(address)
            try:
                return connection.say([b"LOCK.NODE"]).kind != "error"
            finally:
                connection.close()
        except (OSError, Gone):
            return False


class Node(Process):
    """A server with the module. Its guard is lifted: the server is new, so nobody holds a lock there."""

    def __init__(self, server: str, module: str):
        super().__init__()
        self.address = f"unix://{self.folder}/node.sock"
        self.words = [server, "--unixsocket", f"{self.folder}/node.sock", "--port", "0", "--save", "", "--dir", str(self.folder),
                      "--loadmodule", module]
        self.begin()

    def begin(self, lift: bool = True) -> None:
        self.start(self.words)
        until("the server answers", lambda: self.answers(self.address))
        if lift:
            connection = Connection(self.address)
            until("its guard is lifted", lambda: connection.say([b"LOCK.GUARD", b"LIFT"]).value == 0)
            connection.close()

    def calm(self) -> None:
        """Removes locks, the guard, and settings that a scenario has changed."""
        connection = Connection(self.address)
        for words in (b"FLUSHALL", b"LOCK.GUARD LIFT", b"CONFIG SET lock.handoff-window 20"):
            connection.say(words.split())
        connection.close()

    def is_level(self) -> bool:
        """Returns true if the node's next token is the time. A new node's tokens begin some seconds ahead of its clock.
        """
        connection = Connection(self.address)
        floor = connection.say([b"LOCK.FLOOR"]).value
        connection.close()
        return floor < time.time() * 1e6

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def restart(self, lift: bool = False) -> None:
        """Kills the server with `kill -9`, and starts it again without the data that it had in memory."""
        self.kill()
        self.begin(lift)


class Agent(Process):
    """A process of `palisade agent`, and its nodes."""

    def __init__(self, program: str, server: str, module: str, count: int = 5):
        super().__init__()
        self.nodes: list[Node] = []
        self.address = f"unix://{self.folder}/agent.sock"
        try:
            self.nodes += [Node(server, module) for _ in range(count)]
            nodes = ",".join(node.address for node in self.nodes)
            # Nodes may take long to answer, since the machine may be busy.
            self.start([program, "agent", "--listen", self.address, "--nodes", nodes, "--node-timeout", "10s"])
            until("the agent answers", lambda: self.answers(self.address))
            until("it has reached all nodes", lambda: self.serving() == count)
        except BaseException:
            self.end()
            raise

    def is_level(self) -> bool:
        """Returns true if all nodes give the same tokens."""
        return all(node.is_level() for node in self.nodes)

    def serving(self) -> int:
        connection = Connection(self.address)
        reply = connection.say([b"LOCK.NODE"])
        connection.close()
        fields = dict(zip((one.value for one in reply.value[::2]), reply.value[1::2]))
        return fields[b"serving"].value

    def end(self) -> None:
        super().end()
        for node in self.nodes:
            node.end()
