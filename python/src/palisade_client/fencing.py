"""Fences in front of a service: docs/fencing.md. A fence remembers the largest tokens, and refuses smaller ones."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ._replies import INTEGERS_END
from .errors import BadArgument, Fenced

# A string of RFC 9651, since its integers have at most 15 digits, and a parameter for the mode.
_HEADER = re.compile(r' *"([1-9][0-9]{0,15})"(?:; *(?:(shared)|permit=([1-9][0-9]{0,4})))? *')
_PERMITS_END = 1 << 16


@dataclass(frozen=True)
class Grant:
    """What a holder shows to a resource: its token, and what that token allows."""

    token: int
    mode: Literal["exclusive", "shared", "permit"] = "exclusive"
    permit: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.token < INTEGERS_END:
            raise BadArgument("a token is a number from 1 to 2^53 - 1")
        if (self.mode == "permit") != (self.permit is not None) or not 0 < (self.permit or 1) < _PERMITS_END:
            raise BadArgument("the mode permit has the number of the permit, 1 to 65535, and no other mode has one")

    @classmethod
    def of_header(cls, value: str) -> Grant:
        """Returns the grant of a header ``Fencing-Token``."""
        found = _HEADER.fullmatch(value)
        if found is None:
            raise BadArgument('a Fencing-Token is "33", "33";shared or "33";permit=2')
        token, shared, permit = found.groups()
        return cls(int(token), "shared" if shared else "permit" if permit else "exclusive", int(permit) if permit else None)

    @property
    def header(self) -> str:
        """The value of the header ``Fencing-Token``."""
        parameter = {"exclusive": "", "shared": ";shared", "permit": f";permit={self.permit}"}[self.mode]
        return f'"{self.token}"{parameter}'


class Fence(Protocol):
    """The store of tokens that a middleware asks. It outlives the service: PostgreSQL, SQLite,
    Redis."""

    def passing(self, resource: str, grant: Grant) -> AbstractAsyncContextManager[Any]:
        """Raises ``Fenced``, or keeps holders that exclude this one waiting until the block ends.

        What the context manager yields is for the handler: a transaction that has passed, for example.
        """
        ...


@dataclass
class _Seen:
    """The tokens that a resource has seen, and the holders that are working on it."""

    exclusive: int = 0
    any: int = 0
    permits: defaultdict[int | None, int] = field(default_factory=lambda: defaultdict(int))
    working: list[Grant] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def largest_against(self, grant: Grant) -> int:
        """Returns the largest token that refuses smaller ones of this mode."""
        if grant.mode == "exclusive":
            return max(self.any, *self.permits.values(), 0)
        if grant.mode == "shared":
            return max(self.exclusive, *self.permits.values(), 0)
        return max(self.any, self.permits[grant.permit])

    def remember(self, grant: Grant) -> None:
        if grant.mode == "permit":
            self.permits[grant.permit] = grant.token
            return
        self.any = max(self.any, grant.token)
        if grant.mode == "exclusive":
            self.exclusive = grant.token


class MemoryFence:
    """A fence that forgets all tokens when the process ends, for tests and for what the process alone keeps."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)

    @asynccontextmanager
    async def passing(self, resource: str, grant: Grant) -> AsyncIterator[None]:
        """Raises ``Fenced``, or keeps holders that exclude this one waiting until the block ends."""
        seen = self._seen[resource]
        while any(_exclude(grant, other) for other in seen.working):
            await seen.ended.wait()
        largest = seen.largest_against(grant)
        if grant.token < largest:
            raise Fenced(grant.token, largest)
        seen.remember(grant)
        seen.working.append(grant)
        try:
            yield
        finally:
            seen.working.remove(grant)
            seen.ended.set()
            seen.ended = asyncio.Event()


def _exclude(one: Grant, other: Grant) -> bool:
    return one.mode != other.mode or (one.mode != "shared" and one.permit == other.permit)
