"""One connection, for as long as it lasts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from ._address import Address
from ._refusals import translated
from ._replies import Reply
from .errors import PalisadeError, Unavailable

Word = str | bytes | int
Answer = Reply | PalisadeError


class Connection:
    """A connection that never reconnects by itself, and queues nothing for later.

    Every sender gets an answer or an error: a request for a lock is never sent after its caller has cancelled it. Any
    number of commands can be in flight; one that nobody awaits any longer does not disturb the others.
    """

    def __init__(self, link: AbstractConnection, address: str) -> None:
        self._link = link
        self._address = address
        self._due: deque[asyncio.Future[Answer]] = deque()
        self._is_retired = False
        self._reader = asyncio.create_task(self._read(), name="palisade: answers")

    @classmethod
    async def open(cls, address: Address, within: float) -> Connection:
        """Opens a connection within this many seconds, including the server's first answers."""
        link = address.connection(within)
        connecting: asyncio.Future[None] = asyncio.ensure_future(_connected(link))
        try:
            await asyncio.wait({connecting}, timeout=within)
            if not connecting.done():
                raise Unavailable(f"{address} did not answer within {within:g} s")
            if (error := connecting.exception()) is not None:
                raise translated(error, str(address)) from error
        except BaseException:
            connecting.cancel()
            # Its outcome does not matter, but has to be retrieved.
            connecting.add_done_callback(lambda late: late.cancelled() or late.exception())
            await _disconnect(link)
            raise
        return cls(link, str(address))

    @property
    def is_usable(self) -> bool:
        """True if commands can be sent."""
        return not self._is_retired and not self._reader.done() and bool(self._link.is_connected)

    async def post(self, words: Sequence[Word]) -> asyncio.Future[Answer]:
        """Sends ``words``, and returns a future of their answer or error."""
        if not self.is_usable:
            raise Unavailable(f"{self._address}: the connection has ended", is_broken=True)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._due.append(answer)
        try:
            await self._link.send_command(*words, check_health=False)
        except Exception as error:
            self._fail(error)
        return answer

    async def send(self, words: Sequence[Word], within: float) -> Reply:
        """Sends ``words``, and returns the answer. Without one in time the command may still be executed."""
        answer = await self.post(words)
        await asyncio.wait({answer}, timeout=within)
        if not answer.done():
            await self.give_up(answer, within)
        return reply_of(answer)

    async def give_up(self, answer: asyncio.Future[Answer], within: float) -> None:
        """Raises an error, since ``answer`` did not arrive within this many seconds.

        Later answers may be late as well, so the connection retires.
        """
        # Answers that arrived while the event loop was busy are read first.
        for _ in range(3):
            await asyncio.sleep(0)
        if not answer.done():
            self.retire()
            raise Unavailable(f"{self._address} did not answer within {within:g} s")

    def retire(self) -> None:
        """Stops sending. The connection ends once all commands are answered."""
        self._is_retired = True
        if not self._due:
            self.destroy()

    def destroy(self) -> None:
        """Closes the connection at once. Pending commands fail."""
        self._is_retired = True
        self._reader.cancel()
        self._fail(Unavailable(f"the connection to {self._address} was closed"))

    @property
    def ended(self) -> asyncio.Future[None]:
        """A future that is done when the connection has ended."""
        return self._reader

    async def _read(self) -> None:
        try:
            while True:
                answer: Answer
                try:
                    answer = await self._link.read_response(disable_decoding=True)
                except ResponseError as error:
                    answer = translated(error, self._address)
                if not self._due:
                    raise Unavailable(f"{self._address} answered what nobody asked", is_broken=True)
                waiting = self._due.popleft()
                if not waiting.done():
                    waiting.set_result(answer)
                if self._is_retired and not self._due:
                    return
        except Exception as error:
            self._fail(error)
        finally:
            self._fail(Unavailable(f"the connection to {self._address} was closed"))
            await _disconnect(self._link)

    def _fail(self, error: Exception) -> None:
        self._is_retired = True
        while self._due:
            waiting = self._due.popleft()
            if not waiting.done():
                waiting.set_result(translated(error, self._address))


def reply_of(answer: asyncio.Future[Any]) -> Reply:
    """Returns the answer to a command, or raises its error."""
    result: Any = answer.result()
    if isinstance(result, PalisadeError):
        raise result
    reply: Reply = result
    return reply


async def _connected(link: Any) -> None:
    await link.connect()


async def _disconnect(link: AbstractConnection) -> None:
    # The connection is gone anyway.
    with suppress(Exception):
        await link.disconnect(nowait=True)
