"""Locks in memory: the grants, the queue and the leases of one node, by the words of its commands."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from redis.asyncio.connection import AbstractConnection

from ._address import Address
from ._clock import now
from ._connection import Answer, Word
from ._replies import Reply
from .errors import BadArgument

# The first token, which has the length of a server's.
_FIRST_TOKEN = 1_700_000_000_000_000


_OF_OWNERS = ("LOCK.RELEASE", "LOCK.EXTEND", "LOCK.REENTER", "LOCK.CONVERT", "LOCK.NOTE")


@dataclass(frozen=True)
class Request:
    """What an acquisition asks for. The ttl is in seconds."""

    owner: bytes
    ttl: float
    note: bytes = b""
    is_shared: bool = False
    limit: int = 0
    """The number of permits; 0 of other locks."""


@dataclass
class _Grant:
    """An owner's grant of a lock."""

    owner: bytes
    note: bytes
    is_shared: bool
    limit: int
    number: int
    token: int
    until: float
    since: float
    holds: int = 1
    sequence: int = 0


@dataclass(eq=False)
class _Waiter:
    """An owner in the queue of a lock."""

    request: Request
    since: float
    until: float
    answer: Callable[[Reply], None]


@dataclass
class _Lock:
    grants: list[_Grant] = field(default_factory=list)
    queue: deque[_Waiter] = field(default_factory=deque)

    def grant_of(self, owner: bytes) -> _Grant | None:
        return next((grant for grant in self.grants if grant.owner == owner), None)

    def number_for(self, request: Request) -> int | None:
        """Returns the number that the request would have (0 for no permit); ``None`` if it is
        incompatible with a grant."""
        for grant in self.grants:
            are_permits = request.limit > 0 and 0 < grant.number <= request.limit
            if not are_permits and not (request.is_shared and grant.is_shared):
                return None
        if request.limit == 0:
            return 0
        taken = {grant.number for grant in self.grants}
        number = next(number for number in range(1, len(taken) + 2) if number not in taken)
        return number if number <= min([request.limit, *(grant.limit for grant in self.grants)]) else None


class Memory:
    """All locks. Any thread may use it; waits run on the event loops of their callers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._locks: dict[bytes, _Lock] = {}
        self._last_token = _FIRST_TOKEN

    def acquire(self, key: bytes, request: Request) -> bool:
        """Returns whether the lock was free for this request."""
        with self._lock:
            return self._acquire(key, request) is not None

    def release(self, key: bytes, owner: bytes, level: int = 1) -> int | None:
        """Releases holds down to below ``level``, and takes the owner out of the queue."""
        with self._lock:
            lock = self._present(key)
            grant = lock.grant_of(owner)
            if grant is not None:
                grant.holds = min(grant.holds, level - 1)
                if grant.holds == 0:
                    lock.grants.remove(grant)
            for waiter in [waiter for waiter in lock.queue if waiter.request.owner == owner]:
                lock.queue.remove(waiter)
                waiter.answer(None)
            self._serve(lock)
            return None if grant is None else grant.holds

    def take_away(self, key: bytes) -> None:
        """Takes a lock away from all its holders. The next in the queue has it."""
        with self._lock:
            lock = self._present(key)
            lock.grants.clear()
            self._serve(lock)

    def waiting(self, key: bytes) -> int:
        """Returns how many wait for a lock."""
        with self._lock:
            return len(self._present(key).queue)

    def is_held(self, key: bytes) -> bool:
        """Returns whether somebody holds a lock."""
        with self._lock:
            return bool(self._present(key).grants)

    def perform(self, words: Sequence[Word], answer: Callable[[Reply], None]) -> None:
        """Performs a command, in an event loop, and calls ``answer`` with the reply: at once, unless it waits."""
        command, *rest = words
        with self._lock:
            if command == "LOCK.NODE":
                answer([b"state", b"serving"])
            elif command == "LOCK.INFO":
                answer(self._info(_bytes(rest[0])))
            elif command == "LOCK.ACQUIRE":
                self._ask(_bytes(rest[0]), rest[1:], answer)
            elif command in _OF_OWNERS:
                answer(self._change(str(command), _bytes(rest[0]), _bytes(rest[1]), rest[2:]))
            else:
                raise BadArgument(f"locks in memory have no {words[0]!r}")

    def _change(self, command: str, key: bytes, owner: bytes, more: Sequence[Word]) -> int | None:
        """Performs a command of an owner."""
        if command == "LOCK.RELEASE":
            return self.release(key, owner, int(more[1]))
        lock = self._present(key)
        grant = lock.grant_of(owner)
        if grant is None:
            return None
        if command == "LOCK.EXTEND":
            grant.until = max(grant.until, now() + int(more[0]) / 1000)
            return grant.token
        if command == "LOCK.REENTER":
            grant.holds = max(grant.holds, int(more[1]))
            return grant.holds
        if command == "LOCK.CONVERT":
            return self._convert(lock, grant, more[0] == "SHARED")
        if int(more[2]) > grant.sequence:
            grant.note, grant.sequence = _bytes(more[0]), int(more[2])
        return grant.sequence

    def _convert(self, lock: _Lock, grant: _Grant, to_shared: bool) -> int | None:
        if grant.number > 0 or (not to_shared and len(lock.grants) > 1):
            return None
        if grant.is_shared and not to_shared:
            grant.token = self._new_token()
        grant.is_shared = to_shared
        self._serve(lock)
        return grant.token

    def _info(self, key: bytes) -> Reply:
        grants = self._present(key).grants
        if not grants:
            return None
        grant = grants[0]
        held, left = int((now() - grant.since) * 1000), max(0, int((grant.until - now()) * 1000))
        return [b"token", grant.token, b"held", held, b"ttl", left, b"note", grant.note, b"seq", grant.sequence]

    def _ask(self, key: bytes, words: Sequence[Word], answer: Callable[[Reply], None]) -> None:
        """Answers a request for a lock, when it is granted or its wait is over."""
        said = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("LIMIT", "WAIT", "NOTE")}
        request = Request(
            _bytes(words[0]), int(words[1]) / 1000, _bytes(said.get("NOTE", b"")), words[2:3] == ["SHARED"], int(said.get("LIMIT", 0))
        )
        grant = self._acquire(key, request)
        if grant is not None or "WAIT" not in said:
            answer(None if grant is None else [grant.token, 0, grant.number])
            return
        waiter = _Waiter(request, now(), now() + int(said["WAIT"]) / 1000, answer)
        self._present(key).queue.append(waiter)
        self._look_again(key, waiter)

    def _look_again(self, key: bytes, waiter: _Waiter) -> None:
        """Serves the queue whenever a lease ends, until the waiter's time is over."""
        with self._lock:
            lock = self._present(key)
            if waiter in lock.queue and now() >= waiter.until:
                lock.queue.remove(waiter)
                waiter.answer(None)
            self._serve(lock)
            if waiter in lock.queue:
                due = min([waiter.until, *(grant.until for grant in lock.grants)])
                asyncio.get_running_loop().call_later(max(0.001, due - now()), self._look_again, key, waiter)

    def _acquire(self, key: bytes, request: Request) -> _Grant | None:
        lock = self._present(key)
        again = lock.grant_of(request.owner)
        if again is not None:
            again.until = max(again.until, now() + request.ttl)
            return again
        return None if lock.queue else self._grant(lock, request)

    def _grant(self, lock: _Lock, request: Request) -> _Grant | None:
        number = lock.number_for(request)
        if number is None:
            return None
        at = now()
        token = self._new_token()
        grant = _Grant(request.owner, request.note, request.is_shared, request.limit, number, token, at + request.ttl, at)
        lock.grants.append(grant)
        return grant

    def _serve(self, lock: _Lock) -> None:
        """Grants to the first in the queue, in turn."""
        while lock.queue:
            grant = self._grant(lock, lock.queue[0].request)
            if grant is None:
                return
            waiter = lock.queue.popleft()
            waiter.answer([grant.token, int((now() - waiter.since) * 1000), grant.number])

    def _present(self, key: bytes) -> _Lock:
        """Returns the lock, without grants whose lease is over."""
        lock = self._locks.setdefault(key, _Lock())
        lock.grants = [grant for grant in lock.grants if grant.until > now()]
        return lock

    def _new_token(self) -> int:
        self._last_token += 1
        return self._last_token


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


class MemoryAddress(Address):
    """The address of locks in memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __str__(self) -> str:
        return "memory"

    def connection(self, within: float) -> AbstractConnection:
        """Returns an object that takes the place of a connection of redis-py."""
        return cast("AbstractConnection", _Link(self._memory))


class _Link:
    """The part of redis-py's connections that ``Connection`` uses."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._due: asyncio.Queue[asyncio.Future[Reply]] = asyncio.Queue()
        self.is_connected = False

    async def connect(self) -> None:
        self.is_connected = True

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_connected = False

    async def send_command(self, *words: Word, check_health: bool = True) -> None:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Reply] = loop.create_future()
        self._due.put_nowait(reply)

        def answer(value: Reply) -> None:
            # A closed event loop awaits nothing.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, reply, value)

        self._memory.perform(words, answer)

    async def read_response(self, disable_decoding: bool = False) -> Answer:
        return await (await self._due.get())


def _set(reply: asyncio.Future[Reply], value: Reply) -> None:
    if not reply.done():
        reply.set_result(value)
