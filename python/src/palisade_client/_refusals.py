"""Conversion of redis-py's and the server's errors to those of this package."""

from __future__ import annotations

import re

from redis.exceptions import ResponseError

from .errors import Guarded, Misconfigured, NoQuorum, PalisadeError, ServerError, Unavailable


def translated(error: BaseException, address: str) -> PalisadeError:
    """Converts ``error``."""
    if isinstance(error, PalisadeError):
        return error
    # While it connects, redis-py wraps the server's error in one of the connection.
    refusal = error if isinstance(error, ResponseError) else error.__cause__
    if not isinstance(refusal, ResponseError):
        return Unavailable(f"{address}: {str(error) or type(error).__name__}", is_broken=True)
    message = str(refusal)
    code, _, rest = message.partition(" ")
    if code == "GUARDED":
        return Guarded(message, _first_number(rest) / 1000)
    if code == "NOQUORUM":
        return NoQuorum(message)
    if code == "NOAUTH":
        return Misconfigured(f"{address} wants a password: put it into the address, redis://user:password@host ({message})")
    if code == "WRONGPASS":
        return Misconfigured(f"{address} refuses the user or the password of the address ({message})")
    if code == "NOPERM":
        return Misconfigured(f"the user may not do that on {address}: docs/acl.md has the rules that locks need ({message})")
    if code in ("MOVED", "ASK"):
        return Misconfigured(f"{address} is one node of a cluster: reach it through a `palisade agent`, docs/agent.md ({message})")
    if message.startswith("ERR max number of clients reached"):
        return Unavailable(f"{address}: {message}", is_broken=True)
    if re.match("ERR unknown command", message, re.IGNORECASE):
        advice = "load the Palisade module there (docs/install.md), or use the address of a `palisade agent`"
        return Misconfigured(f"{address} does not know the commands of locks: {advice} ({message})")
    return ServerError(message, code)


def passes_in(error: BaseException) -> float | None:
    """Returns the seconds to wait before a request with this error is sent again; ``None`` if that
    makes no sense."""
    if not isinstance(error, ServerError):
        return None
    if error.code == "NOTYET":
        return (_first_number(str(error).partition(" ")[2]) or 10) / 1000
    return 0.1 if error.code in ("LOADING", "TRYAGAIN", "BUSY") else None


def is_lasting(error: BaseException) -> bool:
    """Returns whether an error does not pass by itself, so that somebody has to act."""
    if isinstance(error, ServerError):
        return error.code in ("ERR", "WRONGTYPE", "OWNED", "LOCKPANIC")
    return not isinstance(error, (Unavailable, NoQuorum, Guarded))


def is_refusal(error: BaseException) -> bool:
    """Returns whether the error proves that the server has done nothing."""
    return isinstance(error, (Guarded, Misconfigured, ServerError))


def _first_number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
