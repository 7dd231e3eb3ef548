"""Takes a lock, is stopped, and writes with its token when it wakes up.

Arguments: the address of the locks, the key, the store, where its data is. It writes a line for each step.
"""

from __future__ import annotations

import sqlite3
import sys

import psycopg

from palisade_client import Palisade


def write(store: str, where: str, token: int) -> None:
    """Writes the token as the price of apples."""
    if store == "sqlite":
        db = sqlite3.connect(where, isolation_level=None)
        db.create_function("palisade_token", 1, {"prices": token}.get)
        wait_for_word("ready")
        db.execute("UPDATE prices SET price = ? WHERE item = 'apples'", (token,))
        return
    if store == "postgresql, later":
        wait_for_word("ready")
    with psycopg.connect(where) as connection:
        if store == "postgresql":
            wait_for_word("ready")
        connection.execute("SELECT palisade.fence('prices', %s)", (token,))
        connection.execute("UPDATE prices SET price = %s WHERE item = 'apples'", (token,))
        if store == "postgresql, in its transaction":
            wait_for_word("ready")


def wait_for_word(step: str) -> None:
    print(step, flush=True)
    sys.stdin.readline()


def main(url: str, key: str, store: str, where: str) -> None:
    with Palisade(url) as locks:
        lock = locks.lock(key, ttl=1)
        try:
            write(store, where, lock.token)
            print("wrote")
        except psycopg.Error as error:
            print("refused", error.sqlstate)
        except sqlite3.Error as error:
            print("refused", error)


main(*sys.argv[1:])
