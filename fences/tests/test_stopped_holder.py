"""A holder that is stopped for longer than its lease, on a real lock server, writes nothing when it wakes up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palisade_client import Palisade
from postgresql import Database, fence, price
from servers import ROOT, Node
from test_sqlite import FENCED, Shop, apples
from waiting import at_last

PROGRAM = Path(__file__).parent / "programs" / "writer.py"


@contextmanager
def holder(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and is about to write."""
    command = [sys.executable, str(PROGRAM), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def stop(program: subprocess.Popen[str], node: Node, key: str) -> None:
    """Stops the holder until its lease has ended."""
    program.send_signal(signal.SIGSTOP)
    at_last("its lease ends", lambda: node.outside.users(key)[0] == 0)


def wake(program: subprocess.Popen[str]) -> str:
    """Lets the holder go on, and returns how its write ended."""
    program.send_signal(signal.SIGCONT)
    wrote, _ = program.communicate("go\n", timeout=60)
    return wrote.strip()


@pytest.mark.parametrize(
    ("store", "end"),
    [("postgresql", "refused PF001"), ("postgresql, in its transaction", "refused 25P03")],
    ids=["before its transaction", "in its transaction"],
)
def test_a_holder_of_postgresql_that_wakes_up_too_late_writes_nothing(
    a_node: Node, database: Database, key: str, store: str, end: str
) -> None:
    # The server ends a transaction that idles for a second.
    where = f"host={database.cluster.folder} dbname={database.name} user=app options='-c idle_in_transaction_session_timeout=1s'"
    with holder(a_node.url, key, store, where) as program, Palisade(a_node.url) as locks:
        stop(program, a_node, key)
        with locks.lock(key) as lock, database.connect("app") as connection:
            fence(connection, lock.token)
            assert price(connection) == 0
            connection.execute("UPDATE prices SET price = 1")
        assert wake(program) == end
    with database.connect("app") as connection:
        assert price(connection) == 1


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT], ids=["killed", "restarted"])
@pytest.mark.parametrize(
    ("store", "end"),
    [("postgresql, later", "refused PF001"), ("postgresql, in its transaction", "refused 57P01")],
    ids=["before its transaction", "in its transaction"],
)
def test_a_holder_that_wakes_up_after_postgresql_has_recovered_writes_nothing(
    a_node: Node, database: Database, key: str, store: str, end: str, by: signal.Signals
) -> None:
    where = f"host={database.cluster.folder} dbname={database.name} user=app"
    with holder(a_node.url, key, store, where) as program, Palisade(a_node.url) as locks:
        stop(program, a_node, key)
        # The server undoes what the holder has begun, and keeps what comes later.
        database.cluster.restart(by)
        with locks.lock(key) as lock, database.connect("app") as connection:
            fence(connection, lock.token)
            connection.execute("UPDATE prices SET price = 1")
        database.cluster.restart(by)
        assert wake(program) == end
    with database.connect("app") as connection:
        assert price(connection) == 1


def test_a_holder_of_sqlite_that_wakes_up_too_late_writes_nothing(a_node: Node, key: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    shop.furnish("wal")
    with holder(a_node.url, key, "sqlite", str(shop.file)) as program, Palisade(a_node.url) as locks:
        stop(program, a_node, key)
        with locks.lock(key) as lock:
            shop.holder(lock.token).execute("UPDATE prices SET price = 1")
        assert wake(program) == f"refused {FENCED}"
    assert apples(shop.connect()) == 1
    shop.end()


def test_a_holder_that_wakes_up_in_time_writes(a_node: Node, database: Database, key: str) -> None:
    where = f"host={database.cluster.folder} dbname={database.name} user=app"
    with holder(a_node.url, key, "postgresql", where) as program:
        program.send_signal(signal.SIGSTOP)
        assert wake(program) == "wrote"
