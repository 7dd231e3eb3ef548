"""SQLite refuses every write of a protected table without a current token."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from postgresql import TOKEN
from rule import Rule, drawn
from servers import ROOT

INSTALL = (ROOT / "fences/sqlite/install.sql").read_text()
PROTECT = (ROOT / "fences/sqlite/protect.sql").read_text()
FENCED = "FENCED: the token is older than that of a newer holder"
UNFENCED = "UNFENCED: this connection holds no token"


def protecting(table: str) -> str:
    """Returns the statements that protect a table, with the tokens of ``prices``."""
    return PROTECT.replace("TABLE_NAME", table).replace("RESOURCE", "prices")


class Shop:
    """A database, and connections to it that are closed at the end of a test."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._open: list[sqlite3.Connection] = []

    def furnish(self, journal: str) -> None:
        """Makes the protected table ``prices``."""
        db = self.connect()
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.executescript(INSTALL)
        db.execute("CREATE TABLE prices (item TEXT PRIMARY KEY, price INT)")
        db.execute("INSERT INTO prices VALUES ('apples', 0)")
        db.executescript(protecting("prices"))

    def connect(self, timeout: float = 60) -> sqlite3.Connection:
        """Returns a connection of a program that has forgotten the fence."""
        db = sqlite3.connect(self.file, timeout=timeout, isolation_level=None, check_same_thread=False)
        self._open.append(db)
        return db

    def holder(self, token: int | None, timeout: float = 60) -> sqlite3.Connection:
        db = self.connect(timeout)
        db.create_function("palisade_token", 1, {"prices": token}.get)
        return db

    def end(self) -> None:
        for db in self._open:
            db.close()


@pytest.fixture(params=["delete", "wal"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "shop.db")
    shop.furnish(request.param)
    yield shop
    shop.end()


WRITES = [
    "INSERT INTO prices VALUES ('pears', 1)",
    "INSERT OR REPLACE INTO prices VALUES ('apples', 1)",
    "INSERT OR IGNORE INTO prices VALUES ('apples', 1)",
    "INSERT INTO prices VALUES ('apples', 1) ON CONFLICT DO UPDATE SET price = 1",
    "INSERT INTO prices VALUES ('apples', 1) ON CONFLICT DO NOTHING",
    "UPDATE prices SET price = 1",
    "UPDATE OR REPLACE prices SET price = 1",
    "UPDATE OR IGNORE prices SET price = 1",
    "DELETE FROM prices",
]


def apples(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT price FROM prices WHERE item = 'apples'").fetchone()
    return None if row is None else int(row[0])


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_without_a_current_token_is_refused_and_with_one_it_lands(shop: Shop, statement: str) -> None:
    forgot = shop.connect()
    with pytest.raises(sqlite3.OperationalError, match="no such function: palisade_token"):
        forgot.execute(statement)
    with pytest.raises(sqlite3.IntegrityError, match=UNFENCED):
        shop.holder(None).execute(statement)
    assert apples(forgot) == 0
    newer = shop.holder(TOKEN)
    newer.execute(statement)
    newer.execute("INSERT OR REPLACE INTO prices VALUES ('apples', 3)")
    with pytest.raises(sqlite3.IntegrityError, match=FENCED):
        shop.holder(TOKEN - 1).execute(statement)
    assert apples(forgot) == 3
    assert forgot.execute("SELECT * FROM palisade_fences").fetchall() == [("prices", 0, TOKEN, TOKEN)]


def test_a_transaction_that_began_before_the_newer_holder_came_does_not_write(shop: Shop) -> None:
    older, newer = shop.holder(TOKEN, timeout=0), shop.holder(TOKEN + 1, timeout=0)
    older.execute("BEGIN")
    assert apples(older) == 0
    try:
        newer.execute("UPDATE prices SET price = 1")
    except sqlite3.OperationalError:
        # Without a WAL, a reader stops the writer.
        older.execute("COMMIT")
        newer.execute("UPDATE prices SET price = 1")
        older.execute("BEGIN")
    with pytest.raises((sqlite3.OperationalError, sqlite3.IntegrityError)):
        older.execute("UPDATE prices SET price = 2")
    older.execute("ROLLBACK")
    with pytest.raises(sqlite3.IntegrityError, match=FENCED):
        older.execute("UPDATE prices SET price = 2")
    assert apples(older) == 1


def test_a_newer_holder_waits_until_the_older_ones_transaction_ends(shop: Shop) -> None:
    older, newer = shop.holder(TOKEN), shop.holder(TOKEN + 1, timeout=0)
    older.execute("BEGIN")
    older.execute("UPDATE prices SET price = 1")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        newer.execute("BEGIN IMMEDIATE")
    older.execute("UPDATE prices SET price = 2")
    older.execute("COMMIT")
    newer.execute("BEGIN IMMEDIATE")
    assert apples(newer) == 2
    newer.execute("UPDATE prices SET price = 3")
    newer.execute("COMMIT")


def test_a_refused_statement_changes_nothing_and_ends_no_transaction(shop: Shop) -> None:
    holder = shop.holder(TOKEN)
    holder.execute("BEGIN")
    holder.execute("UPDATE prices SET price = 1")
    with pytest.raises(sqlite3.IntegrityError, match="a mode is"):
        holder.execute("INSERT INTO palisade_fence (resource, token, mode) VALUES ('prices', 1, 'write')")
    holder.execute("COMMIT")
    assert apples(holder) == 1


@pytest.mark.parametrize("values", ["0", "9007199254740992", "1.5", "'1'", "1, 'write'", "1, 'permit'", "1, 'shared', 1", "1, NULL, 1"])
def test_an_argument_out_of_bounds_is_refused(shop: Shop, values: str) -> None:
    names = ["resource", "token", "mode", "permit"][: values.count(",") + 2]
    with pytest.raises(sqlite3.IntegrityError, match=r"^(a token|a mode|the mode)"):
        shop.connect().execute(f"INSERT INTO palisade_fence ({', '.join(names)}) VALUES ('prices', {values})")


@pytest.mark.parametrize("permit", ["0", "65536", "1.5", "'1'"])
def test_a_permit_number_out_of_bounds_is_refused(shop: Shop, permit: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=r"^the mode"):
        shop.connect().execute(f"INSERT INTO palisade_fence VALUES ('prices', 1, 'permit', {permit})")


@pytest.mark.parametrize("seed", range(5))
def test_each_grant_passes_or_is_refused_as_the_rule_says(shop: Shop, seed: int) -> None:
    db, rule = shop.connect(), Rule()
    db.execute("PRAGMA synchronous = OFF")
    for token, mode, permit in drawn(seed, 100):
        seen = rule.passes(token, mode, permit)
        try:
            db.execute("INSERT INTO palisade_fence VALUES ('prices', ?, ?, ?)", (token, mode, permit))
            refused = None
        except sqlite3.IntegrityError as error:
            refused = str(error)
        assert refused == (None if seen is None else FENCED), (seed, token, mode, permit)


def test_holders_of_permits_write_where_triggers_ask_for_the_number(shop: Shop) -> None:
    db = shop.connect()
    db.execute("CREATE TABLE shards (state INT)")
    asking = protecting("shards").replace("(resource, token) VALUES", "VALUES")
    db.executescript(asking.replace("palisade_token('prices')", "palisade_token('prices'), 'permit', palisade_permit('prices')"))
    for token, permit, refused in [(TOKEN, 1, False), (TOKEN - 1, 2, False), (TOKEN - 1, 1, True)]:
        holder = shop.holder(token)
        holder.create_function("palisade_permit", 1, {"prices": permit}.get)
        if refused:
            with pytest.raises(sqlite3.IntegrityError, match=FENCED):
                holder.execute("INSERT INTO shards VALUES (1)")
        else:
            holder.execute("INSERT INTO shards VALUES (1)")


def test_late_writers_land_in_the_order_of_their_tokens(shop: Shop) -> None:
    db = shop.connect()
    db.execute("CREATE TABLE landed (place INTEGER PRIMARY KEY, token INT)")
    db.executescript(protecting("landed"))
    refusals: list[str] = []

    def writer(random: Random) -> None:
        connection = shop.connect()
        connection.execute("PRAGMA synchronous = OFF")
        tokens: dict[str, int] = {}
        connection.create_function("palisade_token", 1, tokens.get)
        for n in range(25):
            tokens["prices"] = TOKEN + 4 * n + random.randint(0, 40)
            try:
                connection.execute("INSERT INTO landed (token) VALUES (palisade_token('prices'))")
            except sqlite3.IntegrityError as error:
                refusals.append(str(error))

    threads = [threading.Thread(target=writer, args=(Random(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tokens = [row[0] for row in db.execute("SELECT token FROM landed ORDER BY place")]
    assert all(older <= newer for older, newer in itertools.pairwise(tokens))
    assert len(tokens) + len(refusals) == 100
    assert set(refusals) == {FENCED}


def test_a_copy_from_a_dump_has_its_tokens_and_its_protection(shop: Shop, tmp_path: Path) -> None:
    shop.holder(TOKEN).execute("UPDATE prices SET price = 1")
    # A second run of the installation keeps the fences.
    shop.connect().executescript(INSTALL)
    copied = Shop(tmp_path / "copy.db")
    copied.connect().executescript("\n".join(shop.connect().iterdump()))
    with pytest.raises(sqlite3.OperationalError, match="no such function"):
        copied.connect().execute("UPDATE prices SET price = 2")
    with pytest.raises(sqlite3.IntegrityError, match=FENCED):
        copied.holder(TOKEN - 1).execute("UPDATE prices SET price = 2")
    copied.holder(TOKEN).execute("UPDATE prices SET price = 2")
    copied.end()
