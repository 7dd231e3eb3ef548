"""Answers of the server, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from ._holder import without_holder
from .errors import Holder, UnexpectedReply

Reply = Union[None, int, bytes, "list[Reply]"]

# Tokens are below this, by the server's guarantee.
INTEGERS_END = 2**53


@dataclass(frozen=True)
class Granted:
    """A grant: its token, the wait in seconds, and the number of a permit (0 if it is none)."""

    token: int
    waited: float
    number: int


def to_integer(reply: Reply) -> int:
    """Returns an integer. Refuses one that no server with the module answers."""
    if isinstance(reply, int) and 0 <= reply < INTEGERS_END:
        return reply
    raise UnexpectedReply(f"the server answered {reply!r} where an integer below 2^53 belongs")


def to_granted(reply: Reply) -> Granted | None:
    """Returns the answer to LOCK.ACQUIRE; ``None`` if the lock is not this owner's."""
    if reply is None:
        return None
    if not isinstance(reply, list):
        return Granted(to_integer(reply), 0, 0)
    if len(reply) not in (2, 3):
        raise UnexpectedReply(f"the server answered {reply!r} to LOCK.ACQUIRE")
    token, waited, *number = (to_integer(part) for part in reply)
    return Granted(token, waited / 1000, number[0] if number else 0)


def to_fields(reply: Reply) -> Mapping[bytes, Reply] | None:
    """Returns the fields of a map, which RESP2 encodes as a flat list; ``None`` for Null."""
    if reply is None:
        return None
    if not isinstance(reply, list):
        raise UnexpectedReply(f"the server answered {reply!r} where a map belongs")
    names = [name for name in reply[::2] if isinstance(name, bytes)]
    return dict(zip(names, reply[1::2], strict=False))


def text_of(fields: Mapping[bytes, Reply], name: bytes) -> bytes:
    """Returns the bytes of the text ``name``."""
    text = fields.get(name)
    if isinstance(text, bytes):
        return text
    raise UnexpectedReply(f"the server answered {text!r} for {name.decode()}")


def to_holder(reply: Reply) -> Holder | None:
    """Returns the holder in an answer to LOCK.INFO, if any."""
    fields = to_fields(reply)
    token = to_integer(fields.get(b"token")) if fields else 0
    if not fields or token == 0:
        return None
    return Holder(
        note=without_holder(text_of(fields, b"note")).decode(errors="replace"),
        token=token,
        held_for=to_integer(fields.get(b"held")) / 1000,
        lease_left=to_integer(fields.get(b"ttl")) / 1000,
    )
