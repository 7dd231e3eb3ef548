"""Writers and readers of PostgreSQL at the same time: row locks, snapshots, deadlocks, holders that stay too long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import Connection, IsolationLevel, errors

from postgresql import TOKEN, Database, fence, price, put
from rule import Rule, drawn
from waiting import at_last

LEVELS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
OLD, NEW = TOKEN, TOKEN + 1


class Later:
    """A call on its own thread, which may have to wait for another transaction."""

    def __init__(self, connection: Connection[Any], work: Callable[..., object], *arguments: Any) -> None:
        self._pid = connection.info.backend_pid
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(connection, work, arguments), daemon=True)
        self._thread.start()

    def _run(self, connection: Connection[Any], work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            work(connection, *arguments)
        except psycopg.Error as error:
            self.error = error

    def waits(self, database: Database, *, for_: Connection[Any]) -> None:
        """Waits until the call waits for the other transaction."""
        with database.connect() as boss:
            boss.autocommit = True

            def blocked() -> bool:
                row = boss.execute("SELECT pg_blocking_pids(%s)", (self._pid,)).fetchone()
                return row is not None and for_.info.backend_pid in row[0]

            at_last("it waits", blocked)

    def end(self) -> BaseException | None:
        """Returns the error with which the call ended."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "the call still waits"
        return self.error


def state(error: BaseException | None) -> str | None:
    """Returns the SQLSTATE of an error."""
    return error.sqlstate if isinstance(error, psycopg.Error) else None


def attempt(connection: Connection[Any], *grant: Any) -> str | None:
    """Passes the fence, and writes a row if the mode may write. Returns the SQLSTATE of a refusal, which leaves no
    change behind."""
    try:
        fence(connection, *grant)
        if "shared" not in grant:
            # The write adds a row of its own, so that only the fence can refuse it.
            connection.execute("INSERT INTO prices SELECT %s || ' ' || count(*), 1 FROM prices", (str(grant),))
        connection.commit()
    except psycopg.Error as error:
        connection.rollback()
        return error.sqlstate
    return None


def rows(connection: Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM prices").fetchone()
    assert row is not None
    return int(row[0])


def test_a_newer_holder_waits_for_the_older_ones_transaction_and_sees_it(database: Database) -> None:
    older, newer = database.connect("app"), database.connect("app")
    assert attempt(older, OLD) is None
    fence(older, OLD)
    put(older, 1)
    passing = Later(newer, fence, NEW)
    passing.waits(database, for_=older)
    # This holder passed the fence long ago, and still writes.
    put(older, 2)
    older.commit()
    assert passing.end() is None
    assert price(newer) == 2
    put(newer, 3)
    newer.commit()
    assert attempt(older, OLD) == "PF001"
    assert price(older) == 3


def test_a_pass_that_is_rolled_back_leaves_the_fence_as_it_was(database: Database) -> None:
    older, newer = database.connect("app"), database.connect("app")
    assert attempt(older, OLD) is None
    fence(newer, NEW)
    passing = Later(older, fence, OLD)
    passing.waits(database, for_=newer)
    newer.rollback()
    assert passing.end() is None
    put(older, 1)
    older.commit()
    # A pass that is committed by itself stops the older holder, whatever the work after it does.
    fence(newer, NEW)
    newer.commit()
    fence(newer, NEW)
    newer.rollback()
    assert attempt(older, OLD) == "PF001"


STALE = [
    ((OLD,), (NEW,)),
    ((OLD,), (NEW, "shared")),
    ((OLD,), (NEW, "permit", 1)),
    ((OLD,), (NEW, "permit", 2)),
    ((OLD, "shared"), (NEW,)),
    ((OLD, "permit", 1), (NEW,)),
    ((OLD, "permit", 1), (NEW, "permit", 1)),
    ((OLD, "permit", 2), (NEW,)),
    ((OLD, "shared"), (NEW, "permit", 1)),
    ((OLD, "shared"), (NEW, "permit", 2)),
    ((OLD, "permit", 1), (NEW, "shared")),
    ((OLD, "permit", 2), (NEW, "shared")),
]


@pytest.mark.parametrize(("stale", "current"), STALE, ids=str)
def test_an_older_holder_that_waits_for_the_newer_one_is_refused(database: Database, stale: Any, current: Any) -> None:
    older, newer = database.connect("app"), database.connect("app")
    # For neither of the two grants is this the first pass.
    for grant in (stale, current):
        assert attempt(older, OLD - 1, *grant[1:]) is None
    fence(newer, *current)
    passing = Later(older, fence, *stale)
    passing.waits(database, for_=newer)
    newer.commit()
    assert state(passing.end()) == "PF001"


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
@pytest.mark.parametrize(("stale", "current"), STALE, ids=str)
@pytest.mark.parametrize("nested", [False, True], ids=["", "in a savepoint"])
def test_a_transaction_that_began_before_the_newer_holder_came_is_refused(
    database: Database, level: IsolationLevel, stale: Any, current: Any, nested: bool
) -> None:
    older, newer = database.connect("app", level), database.connect("app", level)
    assert attempt(newer, OLD - 1, "permit", 1) is None
    assert rows(older) == 2, "its snapshot is taken"
    if nested:
        newer.execute("SAVEPOINT a")
        fence(newer, *(OLD - 1, *current[1:]))
        newer.execute("SAVEPOINT b")
    assert attempt(newer, *current) is None
    before = rows(newer)
    newer.rollback()
    expected = "PF001" if level == IsolationLevel.READ_COMMITTED else "40001"
    assert attempt(older, *stale) == expected
    # In a new snapshot the holder learns the reason.
    assert attempt(older, *stale) == "PF001"
    assert rows(older) == before


@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: str(level.name))
def test_a_newer_holder_whose_snapshot_lacks_the_older_ones_last_write_starts_again(database: Database, level: IsolationLevel) -> None:
    older, newer = database.connect("app"), database.connect("app", level)
    # This is not the grant's first pass, so that the token of the fence does not change.
    assert attempt(older, OLD) is None
    fence(older, OLD)
    put(older, 7)
    # The statement takes its snapshot, and then waits.
    passing = Later(newer, fence, NEW)
    passing.waits(database, for_=older)
    older.commit()
    assert isinstance(passing.end(), errors.SerializationFailure)
    newer.rollback()
    fence(newer, NEW)
    assert price(newer) == 7


def test_readers_pass_beside_each_other_and_a_writer_waits_for_them(database: Database) -> None:
    first, second, writer = (database.connect("app") for _ in range(3))
    assert attempt(first, NEW, "shared") is None
    fence(first, NEW, "shared")
    fence(second, OLD, "shared")
    writing = Later(writer, fence, NEW + 1)
    writing.waits(database, for_=first)
    fence(second, OLD, "shared")
    first.commit()
    writing.waits(database, for_=second)
    second.commit()
    assert writing.end() is None
    reading = Later(first, fence, OLD, "shared")
    reading.waits(database, for_=writer)
    writer.commit()
    assert state(reading.end()) == "PF001"


def test_a_reader_with_the_largest_token_delays_only_a_reader_with_a_larger_one(database: Database) -> None:
    first, second, third = (database.connect("app") for _ in range(3))
    assert attempt(first, OLD, "shared") is None
    fence(first, NEW, "shared")
    fence(third, OLD, "shared")
    passing = Later(second, fence, NEW + 1, "shared")
    passing.waits(database, for_=first)
    first.commit()
    assert passing.end() is None


def test_a_reader_that_comes_behind_a_waiting_writer_waits_in_no_circle(database: Database) -> None:
    first, writer, second = (database.connect("app") for _ in range(3))
    assert attempt(first, OLD, "shared") is None
    fence(first, OLD + 1, "shared")
    writing = Later(writer, fence, OLD + 3)
    writing.waits(database, for_=first)
    reading = Later(second, fence, OLD + 2, "shared")
    reading.waits(database, for_=writer)
    first.commit()
    assert writing.end() is None
    writer.commit()
    assert state(reading.end()) == "PF001"


def test_permits_of_two_numbers_work_at_the_same_time(database: Database) -> None:
    first, second, drain = (database.connect("app") for _ in range(3))
    for number in (1, 2):
        assert attempt(first, OLD, "permit", number) is None
    fence(first, OLD, "permit", 1)
    fence(second, OLD, "permit", 2)
    same = Later(drain, fence, NEW, "permit", 2)
    same.waits(database, for_=second)
    put(second, 1)
    second.commit()
    assert same.end() is None
    drain.rollback()
    draining = Later(drain, fence, NEW)
    draining.waits(database, for_=first)
    first.commit()
    assert draining.end() is None


def test_readers_and_permits_wait_for_each_other(database: Database) -> None:
    reader, permit = database.connect("app"), database.connect("app")
    assert attempt(reader, OLD, "shared") is None
    # Permit 1 for the first time, permit 1 again, and another permit for the first time.
    for turn, number in enumerate((1, 1, 2)):
        token = NEW + 3 * turn
        fence(reader, token, "shared")
        working = Later(permit, fence, token + 1, "permit", number)
        working.waits(database, for_=reader)
        reader.commit()
        assert working.end() is None
        reading = Later(reader, fence, token + 2, "shared")
        reading.waits(database, for_=permit)
        permit.commit()
        assert reading.end() is None
        reader.rollback()


def test_a_holder_that_stays_in_its_transaction_is_put_out_after_the_time_that_is_set(database: Database) -> None:
    older, newer = database.connect("app"), database.connect("app")
    older.execute("SET idle_in_transaction_session_timeout = '300ms'")
    older.commit()
    fence(older, OLD)
    put(older, 1)
    fence(newer, NEW)
    assert price(newer) == 0
    newer.commit()
    with pytest.raises(errors.IdleInTransactionSessionTimeout):
        older.commit()
    assert price(newer) == 0


def test_two_resources_in_two_orders_cost_one_transaction(database: Database) -> None:
    first, second = database.connect("app"), database.connect("app")
    fence(first, OLD)
    second.execute("SELECT palisade.fence('other', 1)")
    crossing = Later(first, lambda connection: connection.execute("SELECT palisade.fence('other', 2)"))
    crossing.waits(database, for_=second)
    other = Later(second, fence, NEW)
    ends = [state(crossing.end()), state(other.end())]
    assert sorted(ends, key=str) == ["40P01", None], ends


def grant(token: int, mode: str) -> tuple[Any, ...]:
    """Returns a grant of this mode. A permit's mode names its number."""
    kind, _, number = mode.partition(" ")
    return (token, kind, int(number)) if number else (token, kind)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("shared", "shared"), ("permit 1", "permit 2")),
        (("shared", "shared"), ("exclusive", "exclusive")),
        (("permit 1", "permit 2"), ("shared", "shared")),
        (("permit 1", "permit 2"), ("exclusive", "exclusive")),
        (("permit 1", "permit 2"), ("permit 2", "permit 1")),
    ],
    ids=str,
)
def test_of_two_transactions_that_pass_in_two_modes_one_fails(database: Database, first: Any, then: Any) -> None:
    one, other = database.connect("app"), database.connect("app")
    # For none of these grants is this the first pass.
    for mode in ("permit 1", "permit 2", "shared"):
        assert attempt(one, *grant(NEW, mode)) is None
    fence(one, *grant(NEW, first[0]))
    fence(other, *grant(NEW, first[1]))
    crossing = Later(one, fence, *grant(NEW, then[0]))
    crossing.waits(database, for_=other)
    meeting = Later(other, fence, *grant(NEW, then[1]))
    ends = [state(crossing.end()), state(meeting.end())]
    assert sorted(ends, key=str) == ["40P01", None], ends


@pytest.mark.parametrize("seed", range(2))
def test_transactions_that_pass_with_one_grant_each_wait_in_no_circle(database: Database, seed: int) -> None:
    ends: list[str | None] = []

    def holder(random: Random) -> None:
        connection = database.connect("app")
        for n in range(40):
            mode = random.choice(["exclusive", "shared", "shared", *(f"permit {number}" for number in range(1, 5))])
            shown = grant(OLD + 4 * n + random.randint(0, 8), mode)
            try:
                for _ in range(random.randint(1, 3)):
                    fence(connection, *shown)
                    connection.execute("SELECT pg_sleep(0.001)")
                connection.commit()
                ends.append(None)
            except psycopg.Error as error:
                connection.rollback()
                ends.append(error.sqlstate)

    threads = [threading.Thread(target=holder, args=(Random(100 * seed + n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(ends) == {None, "PF001"}, seed


@pytest.mark.parametrize("seed", range(3))
def test_each_grant_passes_or_is_refused_as_the_rule_says(database: Database, seed: int) -> None:
    app, rule = database.connect("app"), Rule()
    for grant in drawn(seed, 100):
        seen = rule.passes(*grant)
        try:
            fence(app, *grant)
            app.commit()
            refused = None
        except psycopg.Error as error:
            app.rollback()
            refused = error.diag.message_detail
        assert refused == (None if seen is None else str(seen)), (seed, grant)


@pytest.mark.parametrize("seed", range(2))
def test_late_writers_of_every_level_land_in_the_order_of_their_tokens(database: Database, seed: int) -> None:
    with database.connect() as boss:
        boss.execute("CREATE TABLE landed (place serial, token bigint)")
        boss.execute("SELECT palisade.protect('landed', 'prices')")
        boss.execute("GRANT ALL ON landed, landed_place_seq TO app")
    ends: list[str | None] = []

    def writer(random: Random, level: IsolationLevel) -> None:
        connection = database.connect("app", level)
        for n in range(25):
            token = OLD + 4 * n + random.randint(0, 40)
            try:
                if random.random() < 0.5:
                    price(connection)
                fence(connection, token)
                if random.random() < 0.3:
                    connection.execute("SELECT pg_sleep(0.002)")
                connection.execute("INSERT INTO landed (token) VALUES (%s)", (token,))
                connection.commit()
                ends.append(None)
            except psycopg.Error as error:
                connection.rollback()
                ends.append(error.sqlstate)

    threads = [threading.Thread(target=writer, args=(Random(100 * seed + n), LEVELS[n % 3])) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.connect() as boss:
        tokens = [row[0] for row in boss.execute("SELECT token FROM landed ORDER BY place")]
    assert tokens == sorted(tokens), seed
    assert len(tokens) == ends.count(None) > 10
    assert "PF001" in ends
    assert set(ends) <= {None, "PF001", "40001"}
