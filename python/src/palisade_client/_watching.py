"""Notices at once, through a ``palisade agent``, that a lock was taken away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from ._connection import Word
from ._connections import Connections
from ._refusals import is_lasting
from .errors import PalisadeError

# Seconds for which a lock is held before it is watched. Most are released before; a watch takes a connection, here and
# to each node.
_AFTER = 0.5

# Milliseconds after which the agent answers even without a change. A connection without that answer is closed.
_WATCH_MS = 60_000

# Pause before the next watch, after an answer and after an error.
_AGAIN = 1.0


async def watch(connections: Connections, key: bytes, token: Callable[[], int], check: Callable[[], None]) -> None:
    """Calls ``check`` when the agent reports that no grant has the ``token``, until this is cancelled.

    Returns if the address is no agent's. Ignores errors: extensions show the state of the lock.
    """
    pid = os.getpid()
    await asyncio.sleep(_AFTER)
    while pid == os.getpid():
        try:
            async with connections.watches:
                if not await connections.is_agent():
                    return
                await _taken_away(connections, key, token)
            check()
        except PalisadeError as error:
            if is_lasting(error):
                return
        await asyncio.sleep(_AGAIN)


async def _taken_away(connections: Connections, key: bytes, token: Callable[[], int]) -> None:
    """Waits until the agent reports that no grant has the token."""
    connection = await connections.for_wait()
    try:
        is_same = True
        while is_same:
            words: list[Word] = ["LOCK.WATCH", key, _WATCH_MS, "TOKEN", token()]
            is_same = await connection.send(words, _WATCH_MS / 1000 + connections.answer_within) is None
    finally:
        connections.destroy(connection)
