"""A PostgreSQL cluster for the tests, with a new database for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from servers import ROOT
from waiting import at_last

INSTALL = (ROOT / "fences/postgresql/install.sql").read_text()
UNINSTALL = (ROOT / "fences/postgresql/uninstall.sql").read_text()
TOKEN = 1795234602884304

# Removes everything from a database.
EMPTY = """
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
    IF to_regrole('app') IS NULL THEN
        CREATE ROLE app LOGIN;
    END IF;
END $$
"""

# PostgreSQL refuses to run as root; Debian's package makes this user.
USER = "postgres" if os.geteuid() == 0 else None

_names = itertools.count(1)


def _programs() -> Path:
    """Returns the folder of PostgreSQL's programs: that of the newest version."""
    if chosen := os.environ.get("PALISADE_POSTGRESQL"):
        return Path(chosen)
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda path: int(path.parts[4]), default=None)
    assert newest is not None, "PostgreSQL is missing: make setup-postgresql"
    return newest.parent


class Cluster:
    """A server on a Unix socket, without a port and without a password."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="palisade-postgresql-"))
        if USER is not None:
            shutil.chown(self.folder, USER)
        self._programs = _programs()
        data = self.folder / "data"
        self.run("initdb", "--pgdata", data, "--username", "boss", "--auth", "trust", "--no-sync", "--locale", "C", "--encoding", "UTF8")
        # Without fsync: data that was written is in the kernel, and the kernel does not crash in these tests.
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off"}
        settings |= {"deadlock_timeout": "100ms", "lock_timeout": "60s"}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._command = [str(self._programs / "postgres"), "-D", str(data), *words]
        self._process = self._run()
        at_last("PostgreSQL answers", self._answers)

    def _run(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, user=USER, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def restart(self, by: signal.Signals) -> None:
        """Ends the server with this signal, and starts it again."""
        self._process.send_signal(by)
        self._process.wait()
        self._process = self._run()
        at_last("PostgreSQL answers again", self._answers)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            # The processes of a killed server end a moment later.
            self._process = self._run()
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def run(self, program: str, *words: str | Path) -> str:
        """Runs one of PostgreSQL's programs, which must succeed, and returns its output."""
        command = [str(word) for word in (self._programs / program, *words)]
        done = subprocess.run(command, user=USER, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def connect(self, database: str, user: str = "boss") -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.folder), dbname=database, user=user)

    def new_database(self) -> Database:
        name = f"test_{next(_names)}"
        self.run("createdb", "--host", self.folder, "--username", "boss", name)
        return Database(self, name)

    def end(self) -> None:
        # SIGQUIT ends the server at once, with all its processes.
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        shutil.rmtree(self.folder)


class Database:
    """A database, and connections to it that are closed at the end of a test."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._open: list[psycopg.Connection[Any]] = []

    def connect(self, user: str = "boss", level: psycopg.IsolationLevel | None = None) -> psycopg.Connection[Any]:
        connection = self.cluster.connect(self.name, user)
        connection.isolation_level = level
        self._open.append(connection)
        return connection

    def furnish(self) -> None:
        """Makes fences, the protected table ``prices``, and a user ``app`` with the permissions that a program needs,
        and no others."""
        with self.connect() as boss:
            boss.execute(EMPTY)
            boss.execute(INSTALL)
            boss.execute("CREATE TABLE prices (item text PRIMARY KEY, price bigint)")
            boss.execute("INSERT INTO prices VALUES ('apples', 0)")
            boss.execute("SELECT palisade.protect('prices', 'prices')")
            boss.execute("GRANT ALL ON prices TO app")
            boss.execute("GRANT USAGE ON SCHEMA palisade TO app")
            boss.execute("GRANT EXECUTE ON FUNCTION palisade.fence TO app")

    def run_script(self, script: str) -> None:
        """Runs a script in the way that the documentation describes."""
        file = self.cluster.folder / "script.sql"
        file.write_text(script)
        file.chmod(0o644)
        where = ("--host", self.cluster.folder, "--username", "boss", "--dbname", self.name)
        self.cluster.run("psql", "--quiet", "--no-psqlrc", "--single-transaction", "--set", "ON_ERROR_STOP=1", *where, "--file", file)

    def end(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()


def fence(connection: psycopg.Connection[Any], token: int, mode: str = "exclusive", permit: int | None = None) -> None:
    """Passes the fence of the table ``prices``, or raises."""
    connection.execute("SELECT palisade.fence('prices', %s, %s, %s)", (token, mode, permit))


def put(connection: psycopg.Connection[Any], price: int) -> None:
    connection.execute("UPDATE prices SET price = %s WHERE item = 'apples'", (price,))


def price(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT price FROM prices WHERE item = 'apples'").fetchone()
    assert row is not None
    return int(row[0])
