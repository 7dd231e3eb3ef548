"""Locks for programs with asyncio: the API of ``palisade_client`` itself, with ``await``."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import redis.asyncio

from ._address import Address, Client
from ._background import forsake
from ._facts import Facts, LeadershipFacts, PermitFacts
from ._gated import AsyncFencedRedis, Gate
from ._hold import Hold
from ._leading import Leader, campaign
from ._locks import Asked, Locks, in_order
from ._moving import AsyncDualLock as DualLock
from ._observing import Watch, leader_now
from ._once import Once, checked_min_hold, end, end_quietly
from .errors import BadArgument, Closed
from .loss import Loss, Released
from .options import Key, LockOptions, Seconds, TryOptions, checked, checked_key, checked_limit, checked_time

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
P = ParamSpec("P")
L = TypeVar("L", bound="Lock")

__all__ = ["DualLock", "Election", "Leadership", "Lock", "Lost", "Observation", "Palisade", "Permit", "Semaphore"]


class Lost:
    """The loss of a lock, to check and to wait for."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Returns whether the lock is lost. The clock decides at each call."""
        return self.loss is not None

    __bool__ = is_set

    @property
    def loss(self) -> Loss | None:
        """The loss; ``None`` if the lock is not lost."""
        if self._hold.is_over:
            self._hold.held.lose_if_over()
        return self._hold.held.loss

    async def wait(self) -> Loss | None:
        """Waits for the loss and returns it, or ``None`` once the lock is released."""
        held = self._hold.held
        if self.is_set() or held.is_ended:
            return held.loss
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end() -> None:
            if not ended.done():
                ended.set_result(None)

        held.listen(on_end)
        try:
            await ended
        finally:
            held.forget(on_end)
        return held.loss


class Taking(Coroutine[Any, Any, L]):
    """An acquisition in progress: ``await`` it, enter it by ``async with``, or make a task of it."""

    def __init__(self, take: Callable[[], Coroutine[Any, Any, L]]) -> None:
        self._take = take
        self._lock: L | None = None
        self._of_task: Coroutine[Any, Any, L] | None = None

    def __await__(self) -> Generator[Any, Any, L]:
        return self._take().__await__()

    def _begun(self) -> Coroutine[Any, Any, L]:
        if self._of_task is None:
            self._of_task = self._take()
        return self._of_task

    def send(self, value: Any) -> Any:
        """Runs the acquisition to its next step, for the task that it was made into."""
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raises an exception in the acquisition, for its task."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """Ends the acquisition, for its task."""
        if self._of_task is not None:
            self._of_task.close()

    async def __aenter__(self) -> L:
        self._lock = await self._take()
        return self._lock

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._lock is not None:
            await self._lock.__aexit__(kind, error, traceback)


class Lock(Facts):
    __doc__ = Facts.__doc__

    @property
    def lost(self) -> Lost:
        """The loss of the lock: ``lock.lost.is_set()``, ``lock.lost.loss``, ``await lock.lost.wait()``."""
        return Lost(self._hold)

    async def extend(self, ttl: Seconds | None = None) -> None:
        """Extends the lease from now to the ttl of the lock, or to ``ttl``.

        Raises ``LockLost``; ``Unavailable``: the lock stays valid until its previous end.
        """
        await self._hold.extend(ttl)

    def reenter(self) -> Taking[Self]:
        """Returns another lock of this acquisition, for code that acquires a lock it may already hold.

        The lock is free once all are released.
        """

        async def take() -> Self:
            return self._again(await self._hold.reenter())

        return Taking(take)

    async def downgrade(self) -> None:
        """Makes an exclusive lock a read lock: waiting readers get in, and the token stays.

        It is a reader's from the call on, even if the server does not answer: the holder must not write any more.
        """
        await self._hold.downgrade()

    async def upgrade(self) -> None:
        """Makes a read lock exclusive, with a new token, if nobody shares it.

        Raises ``NotAcquired`` otherwise: the lock stays as it was. It never waits, since two readers that both waited to
        write would wait for ever. An agent refuses it.
        """
        await self._hold.upgrade()

    async def hand_over(self) -> tuple[str, int]:
        """Leaves the lock to another program, and returns the owner and the token.

        The lease gets its full length once more, and then is neither extended nor released. That program takes over by
        ``Palisade.adopt`` before the lease ends.
        """
        return await self._hold.hand_over()

    def fenced(
        self, client: redis.asyncio.Redis, gate: Key | None = None, *, held: bool = False, keep: Seconds | None = None
    ) -> AsyncFencedRedis:
        """Returns the commands of ``client``, sent through a gate: no server that has seen a newer holder runs them.

        ``client`` reaches the data, on any server with the module. ``gate`` names what remembers the tokens there: one
        for all that the lock protects. ``keep``: the gate is forgotten this long after its last passing. ``held`` in
        place of a gate: the lock is on the same server, and must be held.

        Commands raise ``Fenced`` and ``LockLost``: nothing was done, so stop. docs/commands/gate.md
        """
        return AsyncFencedRedis(client, Gate(self._hold, gate, held, keep))

    async def release(self) -> Released:
        """Releases the lock, and returns the outcome: ``FREED``, ``NOT_HELD`` (it was no longer held) or ``UNKNOWN``.

        The first is true, the others are not. A server that does not answer is no error: the lock was valid until now,
        and is released in the background. Later calls return the first outcome. A re-entered lock releases one hold. A
        cancelled release goes on in the background.

        Raises ``Misconfigured`` or ``ServerError``: the server refuses the release.
        """
        return await self._hold.release()

    async def __aenter__(self) -> Self:
        self._hold.throw_if_released()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Releases the lock. Raises ``LockLost`` if it was lost, unless the block raises something itself.

        A release that does not reach the server is no error, since the work was done under a valid lock: it is logged
        (``palisade_client``).
        """
        if error is None:
            await self._hold.release_unless_lost()
        else:
            await self._hold.release_quietly()


class Permit(Lock, PermitFacts):
    __doc__ = PermitFacts.__doc__


class Leadership(Lock, LeadershipFacts):
    __doc__ = LeadershipFacts.__doc__

    async def proclaim(self, value: str | bytes) -> None:
        """Proclaims another value, at most 1002 bytes. Raises ``LockLost``: the leadership is over."""
        await self._leading.proclaim(self._hold, value)

    async def resign(self) -> Released:
        """Stops leading; the next candidate leads at once. See ``release``."""
        return await self.release()


class Semaphore:
    """A limited number of permits.

    Each permit has a number, from 1 to the limit, that no other holder has at the time: it can be a worker's id, a
    shard or a port. Its token is larger than that of every earlier permit with its number, so a resource remembers one
    largest token per number.
    """

    def __init__(self, palisade: Palisade, key: Key, limit: int) -> None:
        self._palisade = palisade
        self._key = checked_key(key)
        self._mode = ("LIMIT", checked_limit(limit))

    def acquire(self, **options: Unpack[LockOptions]) -> Taking[Permit]:
        """Waits in turn until a permit is free. Raises ``NotAcquired``, as ``Palisade.lock``."""
        asked = Asked(self._key, self._mode, cast("dict[str, Any]", options))

        async def take() -> Permit:
            return Permit(await self._palisade._locks().take(asked))

        return Taking(take)

    async def try_acquire(self, **options: Unpack[TryOptions]) -> Permit | None:
        """Acquires a permit if one is free now; returns ``None`` otherwise."""
        hold = await self._palisade._locks().try_take(Asked(self._key, self._mode, cast("dict[str, Any]", options)))
        return None if hold is None else Permit(hold)


class Observation:
    """The changes of the leader: iterate over it by ``async for``. ``aclose`` ends it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader | None:
        try:
            return await self._watch.next()
        except Closed:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Ends the iteration, and closes its connection. May be called while another task waits for the next change."""
        await self._watch.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Election:
    """An election: one leader among many candidates.

    The leader holds the lock of this name and has proclaimed that. Its *term* is larger than that of every earlier
    leader. A leader sends its term with each write to a shared resource, which refuses a term smaller than the largest
    it has seen: a paused leader does not know yet that another one leads.
    """

    def __init__(self, palisade: Palisade, name: Key) -> None:
        self._palisade = palisade
        self._key = checked_key(name)

    def campaign(self, value: str | bytes, **options: Unpack[LockOptions]) -> Taking[Leadership]:
        """Waits in turn until this candidate leads, and proclaims ``value``, at most 1002 bytes.

        Every observer that asks afterwards sees this leader or a later one. Raises ``NotAcquired``, as
        ``Palisade.lock``.
        """
        asked = Asked(self._key, (), cast("dict[str, Any]", options))

        async def take() -> Leadership:
            return Leadership(await campaign(self._palisade._locks(), asked, value))

        return Taking(take)

    async def leader(self) -> Leader | None:
        """Returns the leader that the server reports now, or ``None`` if nobody leads.

        The leader may have gone by the time this returns: send it nothing that must not be done twice, unless with its
        term. Raises ``Guarded``: the server may have forgotten who leads.
        """
        return await leader_now(self._palisade._locks().connections, self._key)

    def observe(self) -> Observation:
        """Reports each change of the leader from now on, beginning with the present state; ``None`` if nobody leads.

        Terms grow, and within one term the sequence. While the server is unreachable or guarded, nothing is reported,
        and the last report is the best knowledge there is. The iteration holds one connection, and does not poll. It
        ends when it, or the ``Palisade``, is closed.
        """
        return Observation(Watch(self._palisade._locks().connections, self._key))


class Job:
    """A job that runs unless it ran a short while ago; ``Palisade.once`` creates it. Also a decorator."""

    def __init__(self, palisade: Palisade, name: Key, min_hold: Seconds, options: TryOptions) -> None:
        self._palisade = palisade
        self._key = checked_key(name)
        self._min_hold = checked_min_hold(min_hold)
        self._options = cast("dict[str, Any]", options)

    def __call__(self, work: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Once[T]]]:
        """Decorates ``work``."""

        @functools.wraps(work)
        async def once(*args: P.args, **kwargs: P.kwargs) -> Once[T]:
            return await self.run(lambda _: work(*args, **kwargs))

        return once

    async def run(self, work: Callable[[Lock], Awaitable[T]]) -> Once[T]:
        """Runs ``work`` with the lock if the lock is free, and skips it otherwise.

        Raises ``LockLost`` if the lock was lost before ``work`` had ended, and ``work`` did not raise itself.
        """
        hold = await self._palisade._locks().try_take(Asked(self._key, (), self._options), self._min_hold)
        if hold is None:
            return Once(False)
        try:
            value = await work(Lock(hold))
        except BaseException:
            await end_quietly(hold, self._min_hold)
            raise
        await end(hold, self._min_hold)
        return Once(True, value)


class Palisade:
    """Locks on one server with the Palisade module, or on several through a ``palisade agent``.

    It opens connections of its own when they are needed: one for commands that are answered at once, and one for each
    wait and each watch. It is used in one event loop; in a later one, after that is closed, it begins anew. ``async
    with Palisade(…) as locks`` closes it.
    """

    def __init__(self, address: str | Client, *, answer_within: Seconds = 3.0, **defaults: Unpack[LockOptions]) -> None:
        """Creates a client of ``address``: ``redis://[user:password@]host:port``, ``rediss://…`` or ``unix:///path``.

        It may also be a client of redis-py. ``answer_within`` is the server's time to answer; waiting for a lock does
        not count. The rest are the default options of every lock.
        """
        self._answer_within = checked_time("answer_within", answer_within, 0.001, 86_400)
        self._defaults = cast("dict[str, Any]", defaults)
        checked(self._defaults)
        self._address = Address(address)
        self._present: Locks | None = None
        self._pid = os.getpid()
        self._is_closed = False

    def lock(self, key: Key, **options: Unpack[LockOptions]) -> Taking[Lock]:
        """Acquires a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.

        Use ``async with locks.lock(key) as lock``, or ``lock = await locks.lock(key)``.

        Raises ``NotAcquired``: not in time. ``Guarded``, ``NoQuorum``, ``Unavailable``, ``Misconfigured``,
        ``ServerError``: no answer could be had.
        """
        return self._taking(key, (), options)

    async def try_lock(self, key: Key, **options: Unpack[TryOptions]) -> Lock | None:
        """Acquires the lock if it is free now; returns ``None`` otherwise."""
        hold = await self._locks().try_take(Asked(checked_key(key), (), cast("dict[str, Any]", options)))
        return None if hold is None else Lock(hold)

    def read_lock(self, key: Key, **options: Unpack[LockOptions]) -> Taking[Lock]:
        """Acquires the lock together with other readers, for callers that do not change what it protects. See
        ``lock``."""
        return self._taking(key, ("SHARED",), options)

    def write_lock(self, key: Key, **options: Unpack[LockOptions]) -> Taking[Lock]:
        """Acquires the lock alone. Neither readers nor writers pass an earlier waiter. See ``lock``."""
        return self._taking(key, (), options)

    def adopt(self, key: Key, owner: str, token: int, **options: Unpack[TryOptions]) -> Taking[Lock]:
        """Takes over a lock that another program has handed over (``Lock.hand_over``), and keeps it.

        So the one who enqueues a job acquires the lock, and the worker releases it. Raises ``LockLost``: the lock was no
        longer held with that token.
        """
        asked = Asked(checked_key(key), (), cast("dict[str, Any]", options))

        async def take() -> Lock:
            return Lock(await self._locks().adopt(asked, owner, token))

        return Taking(take)

    @asynccontextmanager
    async def lock_all(self, keys: Iterable[Key], **options: Unpack[LockOptions]) -> AsyncIterator[list[Lock]]:
        """Holds several locks for a block, all or none, waiting for each in turn. ``wait`` limits all of them together.

        They are acquired in the order of their bytes, so callers that acquire several like this never wait for each
        other in a circle. That holds only for callers without other locks. A key that is named twice is acquired once.
        """
        async with AsyncExitStack() as held:
            ordered = in_order(keys, cast("dict[str, Any]", options), self._defaults)
            all_held: list[Lock] = []
            for key, rest in ordered:
                all_held.append(await held.enter_async_context(self.lock(key, **cast("LockOptions", rest))))
                # One may have been lost while the next one was waited for.
                for lock in all_held:
                    lock._hold.throw_if_released()
            yield all_held

    def semaphore(self, key: Key, limit: int) -> Semaphore:
        """Returns a semaphore of at most ``limit`` permits at a time, from 1 to 65 535."""
        return Semaphore(self, key, limit)

    def election(self, name: Key) -> Election:
        """Returns the election of this name."""
        return Election(self, name)

    def once(self, name: Key, min_hold: Seconds, **options: Unpack[TryOptions]) -> Job:
        """Returns a decorator: the function runs if the lock ``name`` is free, and is skipped otherwise.

        The decorated function returns a ``Once``. The lock stays held for at least ``min_hold`` from its grant, even if
        the function takes less or fails: so hosts whose clocks differ by less than that do not run one cron job twice.
        The call does not wait for that time; the lease runs out by itself. Longer work runs under a lock that is
        extended as usual, and is free afterwards. The first lease is ``min_hold`` long: that must not exceed the
        server's ``lock.max-ttl``. ``once(…).run(work)`` passes the lock to ``work``.
        """
        return Job(self, name, min_hold, options)

    async def close(self) -> None:
        """Releases all held locks, ends all waits, and closes the connections.

        The locks are lost (``closed``), and the waits raise ``Closed``. Returns once the server has answered.
        """
        self._is_closed = True
        if self._present is not None and self._pid == os.getpid():
            await self._present.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _taking(self, key: Key, mode: tuple[str, ...], options: LockOptions) -> Taking[Lock]:
        asked = Asked(checked_key(key), mode, cast("dict[str, Any]", options))

        async def take() -> Lock:
            return Lock(await self._locks().take(asked))

        return Taking(take)

    def _locks(self) -> Locks:
        """Returns the locks in the running event loop."""
        if self._is_closed:
            raise Closed()
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            # The parent's objects stay the parent's.
            self._pid = os.getpid()
            forsake(self._present)
            self._present = None
        present = self._present
        if present is not None and present.connections.is_closing:
            # A cancellation of all tasks closed it, and the program goes on.
            present = None
        if present is not None and present.connections.loop is not loop:
            if not present.connections.loop.is_closed():
                raise BadArgument("this Palisade is used in another event loop: make one for each")
            present = None
        if present is None:
            self._present = present = Locks(self._address, self._answer_within, self._defaults)
        return present
