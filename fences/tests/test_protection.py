"""PostgreSQL refuses every write of a protected table in a transaction that has not passed the fence."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors

from postgresql import INSTALL, TOKEN, UNINSTALL, Cluster, Database, fence, price, put

WRITES = [
    "INSERT INTO prices VALUES ('pears', 1)",
    "INSERT INTO prices VALUES ('apples', 1) ON CONFLICT (item) DO UPDATE SET price = 1",
    "UPDATE prices SET price = 1",
    "UPDATE prices SET price = 1 WHERE false",
    "DELETE FROM prices",
    "TRUNCATE prices",
    "COPY prices FROM STDIN",
    "WITH changed AS (UPDATE prices SET price = 1 RETURNING *) SELECT * FROM changed",
    "MERGE INTO prices USING (VALUES (1)) AS other (n) ON item = 'apples' WHEN MATCHED THEN UPDATE SET price = n",
    "SELECT changes_prices()",
    "UPDATE view_of_prices SET price = 1",
    "DELETE FROM items",
    "TRUNCATE items CASCADE",
]
# MERGE came with PostgreSQL 15.
OF_LATER_VERSIONS = {"MERGE": 150000}


def execute(connection: Connection[Any], statement: str) -> None:
    """Executes a statement; COPY sends one row."""
    if not statement.startswith("COPY"):
        connection.execute(statement)
        return
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write_row(("plums", 1))


def refused(state: str, connection: Connection[Any], statement: str) -> psycopg.Error:
    """Returns the error of a statement that is refused with this SQLSTATE; the transaction is rolled back."""
    with pytest.raises(psycopg.Error) as caught:
        execute(connection, statement)
    connection.rollback()
    assert caught.value.sqlstate == state, caught.value
    return caught.value


@pytest.fixture
def with_more(database: Database) -> Database:
    """Adds more ways to reach the table: a function with its owner's rights, a view, and a table to which it refers
    (changes there cascade)."""
    with database.connect() as boss:
        boss.execute("CREATE FUNCTION changes_prices() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'UPDATE prices SET price = 1'")
        boss.execute("CREATE VIEW view_of_prices AS SELECT * FROM prices")
        boss.execute("CREATE TABLE items (item text PRIMARY KEY)")
        boss.execute("INSERT INTO items VALUES ('apples'), ('pears'), ('plums')")
        boss.execute("ALTER TABLE prices ADD FOREIGN KEY (item) REFERENCES items ON DELETE CASCADE")
        boss.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO app")
    return database


@pytest.mark.parametrize("user", ["app", "boss"])
@pytest.mark.parametrize("statement", WRITES)
def test_a_write_without_a_pass_is_refused_and_with_one_it_lands(with_more: Database, statement: str, user: str) -> None:
    connection = with_more.connect(user)
    if connection.info.server_version < OF_LATER_VERSIONS.get(statement.split()[0], 0):
        pytest.skip("this PostgreSQL has no such statement")
    error = refused("PF002", connection, statement)
    assert 'without a token of "prices"' in str(error)
    assert error.diag.message_hint == "Call palisade.fence('prices', token) first, in the same transaction."
    assert price(connection) == 0
    fence(connection, TOKEN)
    execute(connection, statement)
    connection.commit()


def test_a_superuser_who_plays_a_replica_is_refused_too(database: Database) -> None:
    boss = database.connect()
    boss.execute("SET session_replication_role = replica")
    boss.commit()
    refused("PF002", boss, "UPDATE prices SET price = 1")
    refused("PF002", boss, "TRUNCATE prices")


def test_a_pass_ends_with_its_transaction(database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN)
    put(app, 1)
    app.commit()
    # The next program that uses this connection of a pool has not passed the fence.
    refused("PF002", app, "UPDATE prices SET price = 2")
    fence(app, TOKEN)
    app.rollback()
    refused("PF002", app, "UPDATE prices SET price = 2")
    app.autocommit = True
    fence(app, TOKEN)
    refused("PF002", app, "UPDATE prices SET price = 2")
    assert price(app) == 1


def test_a_pass_for_another_resource_or_for_reading_does_not_write(database: Database) -> None:
    app = database.connect("app")
    app.execute("SELECT palisade.fence('other', %s)", (TOKEN,))
    refused("PF002", app, "UPDATE prices SET price = 1")
    fence(app, TOKEN, "shared")
    refused("PF002", app, "UPDATE prices SET price = 1")
    fence(app, TOKEN, "permit", 3)
    put(app, 1)
    app.commit()


def test_a_pass_that_a_savepoint_takes_back_does_not_count(database: Database) -> None:
    app = database.connect("app")
    with app.transaction():
        fence(app, TOKEN)
        with app.transaction():
            put(app, 1)
    assert price(app) == 1
    app.rollback()
    with app.transaction():
        with app.transaction():
            fence(app, TOKEN + 1)
        put(app, 2)
    app.execute("SAVEPOINT s")
    fence(app, TOKEN + 2)
    app.execute("ROLLBACK TO s")
    refused("PF002", app, "UPDATE prices SET price = 3")
    fence(app, TOKEN + 1)
    app.execute("SAVEPOINT s")
    with pytest.raises(errors.DivisionByZero):
        app.execute("SELECT 1/0")
    app.execute("ROLLBACK TO s")
    put(app, 4)
    app.commit()


def test_a_refusal_that_is_caught_opens_nothing(database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN + 1)
    app.commit()
    app.execute("SAVEPOINT s")
    with pytest.raises(psycopg.Error):
        fence(app, TOKEN)
    app.execute("ROLLBACK TO s")
    refused("PF002", app, "UPDATE prices SET price = 1")


def test_a_refusal_has_the_token_that_was_seen(database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN + 7)
    app.commit()
    error = refused("PF001", app, f"SELECT palisade.fence('prices', {TOKEN})")
    assert error.diag.message_primary == f'FENCED: the token {TOKEN} of "prices" is older than {TOKEN + 7}'
    assert error.diag.message_detail == str(TOKEN + 7)


@pytest.mark.parametrize(
    "arguments",
    [
        "NULL",
        "0",
        "-1",
        "9007199254740992",
        "1, 'write'",
        "1, NULL",
        "1, 'permit'",
        "1, 'shared', 1",
        "1, 'permit', 0",
        "1, 'permit', 65536",
    ],
)
def test_an_argument_out_of_bounds_is_refused(database: Database, arguments: str) -> None:
    app = database.connect("app")
    refused("22023", app, f"SELECT palisade.fence('prices', {arguments})")


def test_a_name_out_of_bounds_is_refused_and_the_largest_token_is_not(database: Database) -> None:
    app = database.connect("app")
    refused("23514", app, "SELECT palisade.fence('', 1)")
    refused("23514", app, "SELECT palisade.fence(repeat('x', 513), 1)")
    refused("23502", app, "SELECT palisade.fence(NULL, 1)")
    fence(app, 2**53 - 1)
    put(app, 1)
    app.commit()
    refused("PF001", app, f"SELECT palisade.fence('prices', {2**53 - 2})")


def test_a_user_reaches_the_fences_by_the_function_alone(database: Database) -> None:
    app = database.connect("app")
    denied = "42501"
    for statement in [
        "SELECT * FROM palisade.fences",
        "UPDATE palisade.fences SET a = 0",
        "INSERT INTO palisade.fences VALUES ('prices', 1, 0, 0)",
        "DELETE FROM palisade.fences",
        "TRUNCATE palisade.fences",
        "SELECT palisade.pass_exclusive('prices', 1)",
        "SELECT palisade.unprotect('prices')",
        "CREATE TABLE palisade.mine (n int)",
        "ALTER TABLE prices DISABLE TRIGGER palisade_fence",
        "DROP TRIGGER palisade_fence ON prices",
        "SET session_replication_role = replica",
    ]:
        refused(denied, app, statement)


def test_a_user_without_the_grant_cannot_pass(database: Database) -> None:
    with database.connect() as boss:
        boss.execute("REVOKE EXECUTE ON FUNCTION palisade.fence FROM app")
    refused("42501", database.connect("app"), "SELECT palisade.fence('prices', 1)")


def test_the_owner_of_a_table_protects_it(database: Database) -> None:
    with database.connect() as boss:
        boss.execute("ALTER TABLE prices OWNER TO app")
        boss.execute("SELECT palisade.unprotect('prices')")
    app = database.connect("app")
    refused("42501", app, "SELECT palisade.protect('prices', 'prices')")
    with database.connect() as boss:
        boss.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA palisade TO app")
        boss.execute("CREATE TABLE others (n int)")
    app.execute("SELECT palisade.protect('prices', 'prices')")
    app.commit()
    refused("PF002", app, "UPDATE prices SET price = 1")
    refused("42501", app, "SELECT palisade.protect('others', 'prices')")


def test_names_that_a_user_puts_in_the_way_change_nothing(database: Database) -> None:
    with database.connect() as boss:
        boss.execute("GRANT CREATE ON SCHEMA public TO app")
    fence(app := database.connect("app"), TOKEN)
    passed = app.execute("SELECT pg_current_xact_id()::text, now()").fetchone()
    app.commit()
    app.execute("CREATE TEMP TABLE fences (resource text, permit int, x bigint, a bigint, passed_in xid8, passed_at timestamptz)")
    app.execute("INSERT INTO fences VALUES ('prices', 0, 0, 0, pg_current_xact_id(), now())")
    assert passed is not None
    # Make PostgreSQL report that this is still the transaction that passed.
    number = "CREATE FUNCTION public.pg_current_xact_id_if_assigned() RETURNS xid8 LANGUAGE sql AS 'SELECT ''{}''::xid8'"
    app.execute(number.format(passed[0]))
    app.execute(f"CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''{passed[1]}''::timestamptz'")
    app.execute("CREATE FUNCTION public.always(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT true'")
    app.execute("CREATE OPERATOR public.>= (FUNCTION = public.always, LEFTARG = bigint, RIGHTARG = bigint)")
    app.execute("SET search_path = pg_temp, public, pg_catalog")
    app.commit()
    refused("PF002", app, "UPDATE prices SET price = 1")
    refused("PF001", app, f"SELECT palisade.fence('prices', {TOKEN - 1})")


def test_partitions_are_protected_also_those_that_come_later(database: Database) -> None:
    boss = database.connect()
    boss.execute("CREATE TABLE parted (n int, price int) PARTITION BY RANGE (n)")
    boss.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)")
    boss.execute("INSERT INTO parted VALUES (1, 0)")
    boss.execute("SELECT palisade.protect('parted', 'prices')")
    boss.execute("CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)")
    boss.execute("CREATE TABLE parted_3 (n int, price int)")
    boss.execute("INSERT INTO parted_3 VALUES (20, 0)")
    boss.execute("ALTER TABLE parted ATTACH PARTITION parted_3 FOR VALUES FROM (20) TO (30)")
    boss.commit()
    # Such a partition has no trigger for this until protect is called again.
    truncates = ["TRUNCATE parted_2", "TRUNCATE parted_3"]
    for statement in truncates:
        boss.execute(statement)
    boss.rollback()
    writes = [
        "INSERT INTO parted VALUES (2, 0)",
        "INSERT INTO parted_1 VALUES (2, 0)",
        "TRUNCATE parted",
        "TRUNCATE parted_1",
        "INSERT INTO parted_2 VALUES (12, 0)",
        "UPDATE parted_3 SET price = 1",
        "DELETE FROM parted_3",
    ]
    for role in ("origin", "replica"):
        boss.execute(f"SET session_replication_role = {role}")
        boss.commit()
        for statement in writes:
            refused("PF002", boss, statement)
    boss.execute("SELECT palisade.protect('parted', 'prices')")
    boss.commit()
    for statement in [*writes, *truncates]:
        refused("PF002", boss, statement)
    fence(boss, TOKEN)
    for statement in writes:
        boss.execute(statement)
    boss.execute("SELECT palisade.unprotect('parted')")
    boss.commit()
    for statement in writes:
        boss.execute(statement)


def test_a_table_of_mixed_name_is_protected_by_a_resource_of_any_name(database: Database) -> None:
    boss = database.connect()
    boss.execute('CREATE SCHEMA "My Shop"')
    boss.execute('CREATE TABLE "My Shop"."Prices" (n int)')
    boss.execute("""SELECT palisade.protect('"My Shop"."Prices"', 'it''s "mine"')""")
    # A second call of protect changes the resource.
    boss.execute("""SELECT palisade.protect('"My Shop"."Prices"', 'it''s')""")
    boss.commit()
    refused("PF002", boss, 'INSERT INTO "My Shop"."Prices" VALUES (1)')
    boss.execute("SELECT palisade.fence('it''s', 1)")
    boss.execute('INSERT INTO "My Shop"."Prices" VALUES (1)')


def test_a_second_installation_keeps_fences_and_protection(database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN)
    app.commit()
    database.run_script(INSTALL)
    refused("PF001", app, f"SELECT palisade.fence('prices', {TOKEN - 1})")
    refused("PF002", app, "UPDATE prices SET price = 1")
    refused("42501", app, "SELECT palisade.unprotect('prices')")


def test_what_is_removed_leaves_nothing(database: Database) -> None:
    boss = database.connect()
    boss.execute("SELECT palisade.unprotect('prices')")
    put(boss, 1)
    boss.execute("SELECT palisade.protect('prices', 'prices')")
    boss.commit()
    refused("PF002", boss, "UPDATE prices SET price = 2")
    database.run_script(UNINSTALL)
    put(boss, 2)
    left = boss.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'palisade'").fetchone()
    assert left == (0,)
    boss.commit()
    database.run_script(INSTALL)


def test_a_restored_dump_has_its_tokens_and_its_protection(cluster: Cluster, database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN)
    put(app, 1)
    app.commit()
    where = ("--host", str(cluster.folder), "--username", "boss")
    dump = cluster.folder / "dump.sql"
    cluster.run("pg_dump", *where, "--file", dump, database.name)
    restored = cluster.new_database()
    cluster.run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", *where, "--dbname", restored.name, "--file", dump)
    app = restored.connect("app")
    assert price(app) == 1
    refused("PF001", app, f"SELECT palisade.fence('prices', {TOKEN - 1})")
    refused("PF002", app, "UPDATE prices SET price = 2")
    fence(app, TOKEN)
    put(app, 2)
    app.commit()
    restored.end()


def test_a_transaction_whose_number_came_back_with_a_dump_has_not_passed(database: Database) -> None:
    app = database.connect("app")
    fence(app, TOKEN)
    app.commit()
    boss = database.connect()
    # A dump of another cluster can bring the number of a transaction that this cluster has yet to reach.
    boss.execute("UPDATE palisade.fences SET passed_in = pg_current_xact_id()")
    refused("PF002", boss, "UPDATE prices SET price = 1")
