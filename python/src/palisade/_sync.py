"""Locks for programs with threads, or with none of their own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from . import aio
from ._address import Client
from ._background import background
from ._facts import Facts, LeadershipFacts, PermitFacts
from ._held import Held
from ._hold import Hold
from ._leading import Leader, Leading, campaign
from ._locks import Asked
from ._observing import Watch, leader_now
from ._once import Once, checked_min_hold, end, end_quietly
from .errors import Closed
from .loss import Loss, Released
from .options import Key, LockOptions, Seconds, TryOptions, checked_key, checked_limit

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
P = ParamSpec("P")


def _run(work: Callable[[], Awaitable[T]]) -> T:
    """Does ``work``, also if this thread does not wait for it any more."""
    return background().run(work)


def _call_soon(held: Held, work: Callable[[Callable[[], object]], object], listener: Callable[[], object]) -> None:
    # At the end of the program the event loop is closed before daemons end.
    with suppress(RuntimeError):
        held.connections.loop.call_soon_threadsafe(work, listener)


class Lost:
    """Whether and why a lock is lost: to look at, and to wait for. Any thread may."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether it is lost, by the clock at each look."""
        return self.loss is not None

    __bool__ = is_set

    @property
    def loss(self) -> Loss | None:
        """Why it is lost; ``None``: it is not."""
        if self._hold.is_over:
            _run(self._hold.settle)
        return self._hold.held.loss

    def wait(self, timeout: float | None = None) -> Loss | None:
        """Returns the loss when there is one, or ``None`` when the lock is given back or after ``timeout`` seconds."""
        held = self._hold.held
        if self.is_set() or held.is_ended:
            return held.loss
        ended = threading.Event()
        _call_soon(held, held.listen, ended.set)
        try:
            ended.wait(timeout)
        finally:
            _call_soon(held, held.forget, ended.set)
        return self.loss


class Lock(Facts):
    __doc__ = Facts.__doc__

    @property
    def lost(self) -> Lost:
        """Whether and why it is lost: ``lock.lost.is_set()``, ``lock.lost.loss``, ``lock.lost.wait(timeout)``."""
        return Lost(self._hold)

    def extend(self, ttl: Seconds | None = None) -> None:
        """Makes the lease last for the ttl of the lock from now on, or for ``ttl``.

        Raises ``LockLost``; ``Unavailable``: the lock stays valid for as long as it was.
        """
        _run(lambda: self._hold.extend(ttl))

    def reenter(self) -> Self:
        """One lock more of the same acquisition, for code that takes a lock which it may have already.

        It is free when all of them were released.
        """
        return self._again(background().run(self._hold.reenter, Hold.discard))

    def release(self) -> Released:
        """Gives the lock back, and tells what that came to: it was ``FREED``, it was ``NOT_HELD`` any more, or that is ``UNKNOWN``.

        The first is true, the others are not. A server that does not answer is no error: the lock was valid until now, and is given
        back in the background. Later calls return what the first one did. Of a lock that was re-entered it gives one hold
        back.

        Raises ``Misconfigured`` or ``ServerError``: the server refuses to.
        """
        return _run(self._hold.release)

    def __enter__(self) -> Self:
        if not self.is_valid:
            _run(self._hold.check)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Gives it back. Raises ``LockLost`` if it was lost, unless the block raises something itself.

        That the server cannot be told is no error, since the work was done under a valid lock: it is logged (``palisade``).
        """
        _run(self._hold.release_unless_lost if error is None else self._hold.release_quietly)


class Permit(Lock, PermitFacts):
    __doc__ = PermitFacts.__doc__


class Leadership(Lock, LeadershipFacts):
    __doc__ = LeadershipFacts.__doc__

    def proclaim(self, value: str | bytes) -> None:
        """Proclaims another value, at most 1002 bytes. Raises ``LockLost``: it does not lead any more."""
        _run(lambda: self._leading.proclaim(self._hold, value))

    def resign(self) -> Released:
        """Stops leading: the next candidate leads at once. As ``release``."""
        return self.release()


class Semaphore:
    """Permits, of which there are so many.

    Each has a number, from 1 to the limit, that nobody else has at the time: it can be a worker's id, a shard, a port. Its token is
    larger than that of every earlier permit with its number, so a resource remembers one largest token a number.
    """

    def __init__(self, palisade: Palisade, key: Key, limit: int) -> None:
        self._palisade = palisade
        self._key = checked_key(key)
        self._mode = ("LIMIT", checked_limit(limit))

    def acquire(self, **options: Unpack[LockOptions]) -> Permit:
        """Waits in turn until a permit is free. Raises ``NotAcquired``, as ``Palisade.lock``."""
        return Permit(self._palisade._take(self._key, self._mode, options))

    def try_acquire(self, **options: Unpack[TryOptions]) -> Permit | None:
        """A permit if one is free now, else ``None``."""
        hold = self._palisade._try_take(self._key, self._mode, options)
        return None if hold is None else Permit(hold)


class Observation:
    """Tells each change of who leads: iterate over it. ``close`` ends it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader | None:
        try:
            return background().run(self._watch.next, _nothing)
        except Closed:
            raise StopIteration from None

    def close(self) -> None:
        """Ends the iteration, and gives its connection back. Can be called while another thread waits for the next change."""
        _run(self._watch.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Election:
    """One leader of many.

    The leader is whoever holds the lock of this name and has proclaimed that: its *term* is larger than that of every earlier
    leader. What a leader does to something that others can write to goes there with the term, and a smaller one than was seen is
    refused: a leader that was paused does not know yet that there is another one.
    """

    def __init__(self, palisade: Palisade, name: Key) -> None:
        self._palisade = palisade
        self._key = checked_key(name)

    def campaign(self, value: str | bytes, **options: Unpack[LockOptions]) -> Leadership:
        """Waits in turn until this candidate leads, and proclaims ``value``, at most 1002 bytes.

        Every observer that asks from then on sees this leader or a later one. Raises ``NotAcquired``, as ``Palisade.lock``.
        """
        asked = Asked(self._key, (), _threaded(options))
        locks = self._palisade._locks
        return Leadership(background().run(lambda: campaign(locks(), asked, value), _discarded))

    def leader(self) -> Leader | None:
        """Who leads, as the server says now; ``None``: nobody.

        A leader that was seen may have gone by the time this returns: nobody is sent anything that must not be done twice without
        its term. Raises ``Guarded``: the server may have forgotten who leads.
        """
        return _run(lambda: leader_now(self._palisade._locks().connections, self._key))

    def observe(self) -> Observation:
        """Tells each change of who leads from now on, the present state first; ``None``: nobody leads.

        Terms grow, and within one the sequence. As long as the server cannot be asked or is guarded nothing is told: what was told
        last is the best that is known. One connection is taken meanwhile, and nobody polls. The iteration ends when it, or the
        ``Palisade``, is closed.
        """

        async def watch() -> Watch:
            return Watch(self._palisade._locks().connections, self._key)

        return Observation(_run(watch))


class Job:
    """A job that runs if nobody has run it for a while; of ``Palisade.once``. A decorator for it, too."""

    def __init__(self, palisade: Palisade, name: Key, min_hold: Seconds, options: TryOptions) -> None:
        self._palisade = palisade
        self._key = checked_key(name)
        self._min_hold = checked_min_hold(min_hold)
        self._options = _threaded(options)

    def __call__(self, work: Callable[P, T]) -> Callable[P, Once[T]]:
        """Decorates ``work``."""

        @functools.wraps(work)
        def once(*args: P.args, **kwargs: P.kwargs) -> Once[T]:
            return self.run(lambda _: work(*args, **kwargs))

        return once

    def run(self, work: Callable[[Lock], T]) -> Once[T]:
        """Runs ``work``, which is given the lock, if the lock is free; skips it otherwise.

        Raises ``LockLost`` if the lock was lost before ``work`` had ended, and ``work`` did not fail itself.
        """
        min_hold, locks, asked = self._min_hold, self._palisade._locks, Asked(self._key, (), self._options)
        hold = background().run(lambda: locks().try_take(asked, min_hold), _discarded_if_any)
        if hold is None:
            return Once(False)
        try:
            value = work(Lock(hold))
        except BaseException:
            _run(lambda: end_quietly(hold, min_hold))
            raise
        _run(lambda: end(hold, min_hold))
        return Once(True, value)


class Palisade:
    """Locks on one server with the Palisade module, or on several by a ``palisade agent``.

    It has connections of its own, made when they are needed: one for what is answered at once, and one for each wait and each watch.
    Any number of threads may use it. ``with Palisade(…) as locks`` closes it at the end.
    """

    def __init__(self, address: str | Client, *, answer_within: Seconds = 3.0, **defaults: Unpack[LockOptions]) -> None:
        """``address``: ``redis://[user:password@]host:port``, ``rediss://…``, ``unix:///path``, or a client of redis-py.

        ``answer_within``: for how long the server is given to answer. Waiting for a lock is not counted. The rest: options of every
        lock, unless it is told otherwise.
        """
        self._aio = aio.Palisade(address, answer_within=answer_within, **cast("LockOptions", _threaded(defaults)))
        self._locks = self._aio._locks

    def lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """Takes a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.

        ``with locks.lock(key) as lock`` gives it back at the end of the block.

        Raises ``NotAcquired``: not in time. ``Guarded``, ``NoQuorum``, ``Unavailable``, ``Misconfigured``, ``ServerError``: it could
        not be asked for.
        """
        return Lock(self._take(key, (), options))

    def try_lock(self, key: Key, **options: Unpack[TryOptions]) -> Lock | None:
        """The lock if it is free now, else ``None``."""
        hold = self._try_take(key, (), options)
        return None if hold is None else Lock(hold)

    def read_lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """As ``lock``, together with others who read: for those who do not change what the lock protects."""
        return Lock(self._take(key, ("SHARED",), options))

    def write_lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """As ``lock``: alone. Neither readers nor writers pass one who waits longer."""
        return Lock(self._take(key, (), options))

    def semaphore(self, key: Key, limit: int) -> Semaphore:
        """Permits of which at most ``limit`` are held at a time, 1 to 65 535."""
        return Semaphore(self, key, limit)

    def election(self, name: Key) -> Election:
        """The election of this name."""
        return Election(self, name)

    def once(self, name: Key, min_hold: Seconds, **options: Unpack[TryOptions]) -> Job:
        """A decorator: the function runs if the lock ``name`` is free, and is skipped otherwise; it returns a ``Once``.

        The lock stays held for at least ``min_hold`` from its grant, also if the function takes less or fails: so hosts whose clocks
        differ by less than that do not run one cron job twice. Nobody waits for it; its lease is left to run out. Longer work is
        done under a lock that is extended as usual, and the lock is free afterwards. The lease is as long as ``min_hold`` at first:
        that must not be longer than the server's ``lock.max-ttl``. ``once(…).run(work)`` gives ``work`` the lock.
        """
        return Job(self, name, min_hold, options)

    def close(self) -> None:
        """Gives back all locks that are held (they are lost, ``closed``), ends all waits (with ``Closed``), closes the connections.

        Returns when the server has been told.
        """
        _run(self._aio.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, key: Key, mode: tuple[str | int, ...], options: LockOptions) -> Hold:
        asked = Asked(checked_key(key), mode, _threaded(options))
        return background().run(lambda: self._locks().take(asked), Hold.discard)

    def _try_take(self, key: Key, mode: tuple[str | int, ...], options: TryOptions) -> Hold | None:
        asked = Asked(checked_key(key), mode, _threaded(options))
        return background().run(lambda: self._locks().try_take(asked), _discarded_if_any)


def _threaded(options: LockOptions | TryOptions) -> dict[str, Any]:
    """``options``, with ``on_lost`` on a thread of its own: it may take long, and ask for locks itself."""
    given = cast("dict[str, Any]", dict(options))
    on_lost = given.get("on_lost")
    if callable(on_lost):
        given["on_lost"] = functools.partial(_start, on_lost)
    return given


def _start(on_lost: Callable[[Loss], object], loss: Loss) -> None:
    threading.Thread(target=on_lost, args=(loss,), name="palisade: on_lost", daemon=True).start()


async def _discarded_if_any(hold: Hold | None) -> None:
    if hold is not None:
        await hold.discard()


async def _discarded(leading: Leading) -> None:
    await leading.hold.discard()


async def _nothing(_: object) -> None:
    pass
