"""Clients of redis-py whose commands pass a gate: docs/commands/gate.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import redis
import redis.asyncio
from redis.client import EMPTY_RESPONSE
from redis.commands import AsyncCoreCommands, CoreCommands
from redis.exceptions import ResponseError

from ._clock import milliseconds
from ._connection import Word
from ._hold import Hold
from .errors import BadArgument, Fenced, LockLost, Misconfigured, naming
from .loss import Loss, LossReason
from .options import Key, Seconds, checked_key, checked_time

_GATE = "LOCK.GATE"
_KEEP_MOST = 366 * 86_400.0


class Gate:
    """A gate, and the lock whose token its commands have."""

    def __init__(self, hold: Hold, gate: Key | None, held: bool, keep: Seconds | None) -> None:
        if (gate is None) != held:
            raise BadArgument("name the gate (gate='invoices'), or ask the lock of the same server (held=True)")
        if held and keep is not None:
            raise BadArgument("held remembers nothing: leave keep out")
        self.hold = hold
        self._key = hold.key if gate is None else checked_key(gate)
        self._more: list[Word] = ["HELD"] if held else []
        if keep is not None:
            self._more = ["KEEP", milliseconds(checked_time("keep", keep, 0.001, _KEEP_MOST))]

    def words(self, command: tuple[Any, ...]) -> list[Any]:
        """Returns the command, sent through the gate."""
        held = self.hold.held
        mode: list[Word] = ["SHARED"] if "SHARED" in held.mode else ["PERMIT", held.number] if held.is_one_of_several else []
        # redis-py writes some commands with a space between their words.
        first = command[0].split() if isinstance(command[0], str) else command[:1]
        return [_GATE, self._key, held.token, *mode, *self._more, "COMMAND", *first, *command[1:]]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Raises the refusals of the gate as errors of this package. Other errors stay those of redis-py."""
        with naming(self.hold.key):
            try:
                yield
            except ResponseError as error:
                code, _, rest = str(error).partition(" ")
                if code == "FENCED":
                    self.hold.held.check_soon()
                    raise Fenced(self.hold.held.token, int(rest.partition(" ")[0])) from error
                if code == "NOTHELD":
                    self.hold.held.check_soon()
                    raise LockLost(Loss.of(LossReason.TAKEN_AWAY)) from error
                if re.match("(ERR )?unknown command", str(error), re.IGNORECASE):
                    advice = "load the Palisade module there (docs/install.md)"
                    raise Misconfigured(f"the data's server does not know {_GATE}: {advice} ({error})") from error
                raise


def _prepared(client: Any, options: dict[str, Any], command: tuple[Any, ...]) -> dict[str, Any]:
    """Makes ``client`` convert replies as it does without a gate, and returns the options of the command."""
    callbacks = client.response_callbacks

    def convert(reply: Any, gated: Any = None, **rest: Any) -> Any:
        return callbacks[gated](reply, **rest) if gated in callbacks else reply

    client.set_response_callback(_GATE, convert)
    # An empty answer in place of an error would hide a refusal; `keys` is for the client's cache, which no gate guards.
    return {name: value for name, value in options.items() if name not in (EMPTY_RESPONSE, "keys")} | {"gated": command[0]}


class FencedRedis(CoreCommands):
    """The commands of a client of redis-py, sent through a gate with the token of a lock: see ``Lock.fenced``.

    What would not pass the gate is missing: pipelines, transactions, ``pubsub``.
    """

    _is_async_client: Literal[False] = False
    _event_dispatcher: Any = None

    def __init__(self, client: redis.Redis, gate: Gate, check: Callable[[], object]) -> None:
        self._client = client
        self._gate = gate
        self._check = check

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Sends a command through the gate, and returns its reply.

        Raises ``Fenced`` and ``LockLost``: nothing was done, so stop. Errors of the command are those of redis-py.
        """
        if not self._gate.hold.valid_for:
            self._check()
        words = self._gate.words(args)
        with self._gate.refusing():
            return self._client.execute_command(*words, **_prepared(self._client, options, args))  # type: ignore[no-untyped-call, unused-ignore]

    def get_encoder(self) -> Any:
        """Returns the encoder of the client."""
        return self._client.get_encoder()  # type: ignore[no-untyped-call, unused-ignore]


class AsyncFencedRedis(AsyncCoreCommands):
    __doc__ = FencedRedis.__doc__

    _is_async_client: Literal[True] = True
    _event_dispatcher: Any = None

    def __init__(self, client: redis.asyncio.Redis, gate: Gate) -> None:
        self._client = client
        self._gate = gate

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Sends a command through the gate, and returns its reply.

        Raises ``Fenced`` and ``LockLost``: nothing was done, so stop. Errors of the command are those of redis-py.
        """
        if not self._gate.hold.valid_for:
            self._gate.hold.throw_if_released()
        words = self._gate.words(args)
        with self._gate.refusing():
            return await self._client.execute_command(*words, **_prepared(self._client, options, args))  # type: ignore[no-untyped-call, unused-ignore]

    def get_encoder(self) -> Any:
        """Returns the encoder of the client."""
        return self._client.get_encoder()  # type: ignore[no-untyped-call, unused-ignore]
