"""The locks of one ``Palisade`` in one event loop: takes them, and gives all back at the end."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from typing import Any

from ._acquiring import Wanted, acquire
from ._address import Address
from ._connection import Word
from ._connections import Acquisition, Connections
from ._held import Held
from ._hold import Hold
from .errors import Closed, NotAcquired
from .loss import LossReason
from .options import checked, checked_key


class Locks:
    """Made, and used, in a running event loop."""

    def __init__(self, address: Address, answer_within: float, defaults: dict[str, Any]) -> None:
        self.connections = Connections(address, answer_within)
        self.defaults = defaults
        self._held: set[Held] = set()
        self._closing: asyncio.Task[None] | None = None

    async def take(self, key: object, mode: Sequence[Word], given: dict[str, Any], min_hold: float = 0, tells_holder: bool = True) -> Hold:
        """Takes a lock in this mode. Its first lease lasts for ``min_hold`` at least."""
        options = checked({**self.defaults, **given})
        ttl = max(options.ttl, min_hold)
        # New for each acquisition, so that nobody takes another's grant for their own.
        acquisition = Acquisition(checked_key(key), secrets.token_hex(16), ttl)
        wanted = Wanted(acquisition, mode, options.note, options.wait, tells_holder)
        grant = await acquire(self.connections, wanted)
        if self._closing is not None:
            self.connections.give_back(acquisition)
            raise Closed()
        held = Held(self.connections, acquisition, grant, options, self._held.discard)
        self._held.add(held)
        return Hold(held)

    async def try_take(self, key: object, mode: Sequence[Word], given: dict[str, Any], min_hold: float = 0) -> Hold | None:
        """Takes a lock if it is free now."""
        try:
            return await self.take(key, mode, {**given, "wait": 0}, min_hold, tells_holder=False)
        except NotAcquired as error:
            if error.reason == "held":
                return None
            raise

    async def lead(self, key: object, given: dict[str, Any]) -> Hold:
        """Takes the lock of an election. A leader is meant to stay."""
        return await self.take(key, [], {"max_hold": self.defaults.get("max_hold", math.inf), **given})

    async def close(self) -> None:
        """Gives back all locks that are held, ends all waits, and closes the connections when the server has been told."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        closing = self._closing
        await asyncio.wait({closing})
        closing.result()

    async def _close(self) -> None:
        for held in list(self._held):
            held.lose(LossReason.CLOSED)
            self.connections.give_back(held.acquisition)
        await self.connections.close()
