"""The locks of one ``Palisade`` in one event loop: acquires them, and releases all at the end."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ._acquiring import TOO_LATE_MAX, Grant, Wanted, acquire
from ._address import Address
from ._clock import milliseconds, now, valid_until
from ._connection import Word
from ._connections import Acquisition, Connections
from ._held import Held
from ._hold import Hold
from ._holder import current_holder, default_note, noted
from ._replies import INTEGERS_END, Granted, to_integer
from .errors import BadArgument, Closed, LockLost, NotAcquired, naming
from .listening import Listening
from .loss import Loss, LossReason
from .options import Checked, Key, checked, checked_key


@dataclass(frozen=True)
class Asked:
    """A caller's request, and the holder id of its thread or task."""

    key: bytes
    mode: Sequence[Word]
    options: dict[str, Any]
    holder: str = field(default_factory=current_holder)

    def but(self, **options: object) -> Asked:
        """Returns a copy with these options."""
        return replace(self, options=self.options | options)


def in_order(keys: Iterable[Key], options: dict[str, Any], defaults: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Returns the keys in the order of their bytes, each with its options. Together they wait no longer than ``wait``."""
    ordered = sorted({checked_key(key) for key in keys})
    if not ordered:
        raise BadArgument("name one key at least")
    wait = checked(defaults | options).wait
    by = None if wait is None else now() + wait
    for key in ordered:
        yield key, options if by is None else {**options, "wait": max(0.0, by - now())}


class Locks:
    """The locks of one event loop. Created and used while it runs."""

    def __init__(self, address: Address, answer_within: float, defaults: dict[str, Any]) -> None:
        self.connections = Connections(address, answer_within)
        self.defaults = defaults
        self._held: set[Held] = set()
        self._closing: asyncio.Task[None] | None = None

    async def take(self, wanted: Asked, min_hold: float = 0, tells_holder: bool = True) -> Hold:
        """Acquires a lock. Its first lease lasts for at least ``min_hold``."""
        with naming(wanted.key):
            options = checked({**self.defaults, **wanted.options})
            ttl = max(options.ttl, min_hold)
            note = noted(default_note() if options.note is None else options.note, options.holder or wanted.holder)
            listening, began = Listening(options.listener, options.lock_class, wanted.mode), now()
            left, by = options.wait, None if options.wait is None else began + options.wait
            tries = 0
            try:
                while True:
                    tries += 1
                    # The owner is new for each attempt, so that no one mistakes another's grant for their own.
                    acquisition = Acquisition(wanted.key, secrets.token_hex(16), ttl)
                    try:
                        grant = await acquire(self.connections, Wanted(acquisition, wanted.mode, note, left, tells_holder))
                        break
                    except NotAcquired as error:
                        is_over = tries == TOO_LATE_MAX or (by is not None and now() >= by)
                        if error.reason != "too-late" or is_over:
                            raise
                        left = None if by is None else max(0.0, by - now())
                hold = self._keep(acquisition, wanted.mode, grant, options, listening)
            except BaseException as error:
                failure = error
                listening.report(lambda listener, kind: listener.failed(kind, now() - began, failure))
                raise
            listening.report(lambda listener, kind: listener.acquired(kind, now() - began))
            return hold

    def _keep(self, acquisition: Acquisition, mode: Sequence[Word], grant: Grant, options: Checked, listening: Listening) -> Hold:
        if self._closing is not None:
            self.connections.give_back(acquisition)
            raise Closed()
        held = Held(self.connections, acquisition, mode, grant, options, self._held.discard, listening)
        self._held.add(held)
        return Hold(held)

    async def adopt(self, wanted: Asked, owner: object, token: object) -> Hold:
        """Takes over a lock that another program has handed over, and keeps it."""
        with naming(wanted.key):
            for name in ("wait", "note"):
                if name in wanted.options:
                    raise BadArgument(f"there is no option {name!r} of a lock that is adopted")
            if not isinstance(owner, str) or not owner:
                raise BadArgument(f"owner must be that of hand_over, not {owner!r}")
            if not isinstance(token, int) or not 0 < token < INTEGERS_END:
                raise BadArgument(f"token must be an integer from 1 to 2^53 - 1, not {token!r}")
            options = checked({**self.defaults, **wanted.options})
            acquisition = Acquisition(wanted.key, owner, options.ttl)
            with self.connections.attended():
                sent = now()
                reply = await self.connections.ask(["LOCK.EXTEND", wanted.key, owner, milliseconds(options.ttl)])
                if reply is None:
                    raise LockLost(Loss.of(LossReason.TAKEN_AWAY))
                current = to_integer(reply)
                # Behind an agent the token can have risen. A smaller one is of another grant.
                if current < token:
                    raise LockLost(Loss.of(LossReason.TAKEN_AWAY, f"its token is {current}"))
                grant = Grant(Granted(current, 0, 0), valid_until(sent, 0, options.ttl))
                listening = Listening(options.listener, options.lock_class, ())
                hold = self._keep(acquisition, (), grant, options, listening)
                listening.report(lambda listener, kind: listener.acquired(kind, now() - sent))
                return hold

    async def try_take(self, wanted: Asked, min_hold: float = 0) -> Hold | None:
        """Acquires a lock if it is free now."""
        with naming(wanted.key):
            if "wait" in wanted.options:
                raise BadArgument("there is no option 'wait' where a lock is not waited for")
        try:
            return await self.take(wanted.but(wait=0), min_hold, tells_holder=False)
        except NotAcquired as error:
            if error.reason == "held":
                return None
            raise

    async def lead(self, wanted: Asked) -> Hold:
        """Acquires the lock of an election, by default without a limit."""
        max_hold = self.defaults.get("max_hold", math.inf)
        return await self.take(replace(wanted, options={"max_hold": max_hold, **wanted.options}))

    def held_of(self, key: bytes) -> list[Held]:
        """Returns the held acquisitions of this lock."""
        return [held for held in self._held if held.acquisition.key == key]

    async def close(self) -> None:
        """Releases all held locks, ends all waits, and closes the connections once the server has answered."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        closing = self._closing
        await asyncio.wait({closing})
        closing.result()

    async def _close(self) -> None:
        # An event loop that has ended has ended the connections too: leases run out by themselves.
        has_loop = not self.connections.loop.is_closed()
        for held in list(self._held):
            held.lose(LossReason.CLOSED)
            if has_loop:
                self.connections.give_back(held.acquisition)
        if has_loop:
            await self.connections.close()
