"""The programs and statements in docs/fencing.md do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from http_server import HttpServer
from palisade_client.asgi import FencingMiddleware, Receive, Scope, Send
from palisade_client.fencing import Grant
from postgresql import INSTALL, TOKEN, Database, price
from servers import ROOT, Node
from test_sqlite import Shop, apples

PAGE = (ROOT / "docs/fencing.md").read_text()


def code(marker: str) -> str:
    """Returns the page's code after a marker."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found, marker
    return found[1]


def run(program: str, folder: Path) -> None:
    """Runs a program of the page."""
    words = [sys.executable, "-W", "error", "-c", program + "\nlocks.close()\ndb.close()\n"]
    done = subprocess.run(words, cwd=folder, env={"PYTHONPATH": str(ROOT / "python/src")}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_program_for_postgresql_writes(database: Database, a_node: Node, tmp_path: Path) -> None:
    with database.connect() as boss:
        boss.execute("DROP SCHEMA palisade CASCADE")
        boss.execute(INSTALL)
        boss.execute(code("postgresql: protect"))
    with database.connect("app") as app, pytest.raises(psycopg.Error, match="UNFENCED"):
        app.execute("UPDATE prices SET price = 1")
    where = f"host={database.cluster.folder} dbname={database.name}"
    run(code("postgresql: program").replace("redis://localhost:6379", a_node.url).replace("dbname=shop", where), tmp_path)
    assert price(database.connect()) == 3


def test_the_fence_of_a_service_lets_its_handler_write_in_the_transaction_that_passed(database: Database) -> None:
    names: dict[str, Any] = {}
    exec(code("http: fence"), names)
    fence = names["PostgresFence"](f"host={database.cluster.folder} dbname={database.name} user=app")

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        db = scope["fencing.passed"]
        await db.execute("UPDATE prices SET price = %s", (scope["fencing.grant"].token,))
        await db.commit()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server = HttpServer(FencingMiddleware(serve, fence, lambda _: "prices"))
    try:
        assert server.ask("PUT", "/", Grant(TOKEN).header)[0] == 204
        status, problem = server.ask("PUT", "/", Grant(TOKEN - 1).header)
        assert (status, problem["seen"]) == (412, TOKEN)
        assert price(database.connect()) == TOKEN
    finally:
        server.end()


def test_the_program_for_sqlite_writes(a_node: Node, tmp_path: Path) -> None:
    [fill_in] = re.findall(r"^sed '(.*)' fences/sqlite/protect.sql \| sqlite3 shop.db$", PAGE, re.MULTILINE)
    shop = Shop(tmp_path / "shop.db")
    db = shop.connect()
    db.executescript((ROOT / "fences/sqlite/install.sql").read_text())
    db.execute("CREATE TABLE prices (item TEXT PRIMARY KEY, price INT)")
    db.execute("INSERT INTO prices VALUES ('apples', 0)")
    protect = subprocess.run(["sed", fill_in, "fences/sqlite/protect.sql"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    db.executescript(protect.stdout)
    run(code("sqlite: program").replace("redis://localhost:6379", a_node.url), tmp_path)
    assert apples(db) == 3
    shop.end()
