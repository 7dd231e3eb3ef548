"""Locks in memory, for unit tests of programs that hold locks: no server is needed.

>>> server = FakeServer()
>>> with server.locks() as locks, pytest.raises(LockLost):
...     import_all(locks, after_each=lambda: server.take_away("import"))

The clients are those of ``palisade_client``, with the locks, the queue and the leases of one node. There is no guard, no
network that fails, and no observation of leaders.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from . import aio
from ._memory import Memory, MemoryAddress, Request
from ._sync import Palisade
from .errors import BadArgument
from .loss import LossReason
from .options import DAY, Key, LockOptions, checked_key

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FakeServer"]


class FakeServer:
    """A server without locks at first, in the memory of this program. Any thread may use it."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._clients: list[aio.Palisade] = []

    def locks(self, **defaults: Unpack[LockOptions]) -> Palisade:
        """Returns a client for threads. Close it as any other."""
        client = Palisade("redis://memory", **defaults)
        self._lead(client._aio)
        return client

    def async_locks(self, **defaults: Unpack[LockOptions]) -> aio.Palisade:
        """Returns a client for asyncio. Close it as any other."""
        client = aio.Palisade("redis://memory", **defaults)
        self._lead(client)
        return client

    def take_away(self, key: Key) -> None:
        """Takes a lock away from all its holders, as an operator does with LOCK.BREAK.

        When this returns they have lost it (``taken-away``), and the next in the queue has it.
        """
        name = checked_key(key)
        for client in self._clients:
            _lose(client, name)
        self._memory.take_away(name)

    def hold_elsewhere(self, key: Key) -> Callable[[], object]:
        """Holds a lock as another program does, and returns what releases it. The lock must be free."""
        name, owner = checked_key(key), b"another program"
        if self.is_held(key) or not self._memory.acquire(name, Request(owner, DAY, owner)):
            raise BadArgument(f"{key!r} is held already")
        return lambda: self._memory.release(name, owner)

    def waiting(self, key: Key) -> int:
        """Returns how many wait for a lock."""
        return self._memory.waiting(checked_key(key))

    def is_held(self, key: Key) -> bool:
        """Returns whether somebody holds a lock."""
        return self._memory.is_held(checked_key(key))

    def _lead(self, client: aio.Palisade) -> None:
        """Makes a client, which has no connections yet, use these locks."""
        client._address = MemoryAddress(self._memory)
        self._clients.append(client)


def _lose(client: aio.Palisade, key: bytes) -> None:
    """Makes the client lose its locks of this name, in its event loop."""
    present = client._present
    if present is None:
        return
    lost = threading.Event()

    def lose() -> None:
        for held in present.held_of(key):
            held.lose(LossReason.TAKEN_AWAY)
        lost.set()

    loop = present.connections.loop
    # A closed event loop holds nothing.
    with suppress(RuntimeError):
        if loop is _running() or not loop.is_running():
            lose()
            return
        loop.call_soon_threadsafe(lose)
        lost.wait()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
