"""Locks for programs with threads, or without any of their own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import redis

from . import aio
from ._address import Client
from ._background import background
from ._facts import Facts, LeadershipFacts, PermitFacts
from ._gated import FencedRedis, Gate
from ._held import Held
from ._hold import Hold
from ._leading import Leader, Leading, campaign
from ._locks import Asked, in_order
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
    """Does ``work``, even if this thread stops waiting for it."""
    return background().run(work)


def _call_soon(held: Held, work: Callable[[Callable[[], object]], object], listener: Callable[[], object]) -> None:
    # At the end of the program, the event loop is closed before daemons end.
    with suppress(RuntimeError):
        held.connections.loop.call_soon_threadsafe(work, listener)


class Lost:
    """The loss of a lock, to check and to wait for. Any thread may use it."""

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
            _run(self._hold.settle)
        return self._hold.held.loss

    def wait(self, timeout: float | None = None) -> Loss | None:
        """Waits for the loss and returns it, or ``None`` once the lock is released or after ``timeout`` seconds."""
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
        """The loss of the lock: ``lock.lost.is_set()``, ``lock.lost.loss``, ``lock.lost.wait(timeout)``."""
        return Lost(self._hold)

    def extend(self, ttl: Seconds | None = None) -> None:
        """Extends the lease from now to the ttl of the lock, or to ``ttl``.

        Raises ``LockLost``; ``Unavailable``: the lock stays valid until its previous end.
        """
        _run(lambda: self._hold.extend(ttl))

    def reenter(self) -> Self:
        """Returns another lock of this acquisition, for code that acquires a lock it may already hold.

        The lock is free once all are released.
        """
        return self._again(background().run(self._hold.reenter, Hold.discard))

    def downgrade(self) -> None:
        """Makes an exclusive lock a read lock: waiting readers get in, and the token stays.

        It is a reader's from the call on, even if the server does not answer: the holder must not write any more.
        """
        _run(self._hold.downgrade)

    def upgrade(self) -> None:
        """Makes a read lock exclusive, with a new token, if nobody shares it.

        Raises ``NotAcquired`` otherwise: the lock stays as it was. It never waits, since two readers that both waited to
        write would wait for ever. An agent refuses it.
        """
        _run(self._hold.upgrade)

    def hand_over(self) -> tuple[str, int]:
        """Leaves the lock to another program, and returns the owner and the token.

        The lease gets its full length once more, and then is neither extended nor released. That program takes over by
        ``Palisade.adopt`` before the lease ends.
        """
        return _run(self._hold.hand_over)

    def fenced(self, client: redis.Redis, gate: Key | None = None, *, held: bool = False, keep: Seconds | None = None) -> FencedRedis:
        """Returns the commands of ``client``, sent through a gate: no server that has seen a newer holder runs them.

        ``client`` reaches the data, on any server with the module. ``gate`` names what remembers the tokens there: one
        for all that the lock protects. ``keep``: the gate is forgotten this long after its last passing. ``held`` in
        place of a gate: the lock is on the same server, and must be held.

        Commands raise ``Fenced`` and ``LockLost``: nothing was done, so stop. docs/commands/gate.md
        """
        return FencedRedis(client, Gate(self._hold, gate, held, keep), lambda: _run(self._hold.check))

    def release(self) -> Released:
        """Releases the lock, and returns the outcome: ``FREED``, ``NOT_HELD`` (it was no longer held) or ``UNKNOWN``.

        The first is true, the others are not. A server that does not answer is no error: the lock was valid until now,
        and is released in the background. Later calls return the first outcome. A re-entered lock releases one hold.

        Raises ``Misconfigured`` or ``ServerError``: the server refuses the release.
        """
        return _run(self._hold.release)

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Releases the lock. Raises ``LockLost`` if it was lost, unless the block raises something itself.

        A release that does not reach the server is no error, since the work was done under a valid lock: it is logged
        (``palisade_client``).
        """
        _run(self._hold.release_unless_lost if error is None else self._hold.release_quietly)

    def _check(self) -> None:
        if not self.is_valid:
            _run(self._hold.check)


class Permit(Lock, PermitFacts):
    __doc__ = PermitFacts.__doc__


class Leadership(Lock, LeadershipFacts):
    __doc__ = LeadershipFacts.__doc__

    def proclaim(self, value: str | bytes) -> None:
        """Proclaims another value, at most 1002 bytes. Raises ``LockLost``: the leadership is over."""
        _run(lambda: self._leading.proclaim(self._hold, value))

    def resign(self) -> Released:
        """Stops leading; the next candidate leads at once. See ``release``."""
        return self.release()


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

    def acquire(self, **options: Unpack[LockOptions]) -> Permit:
        """Waits in turn until a permit is free. Raises ``NotAcquired``, as ``Palisade.lock``."""
        return Permit(self._palisade._take(self._key, self._mode, options))

    def try_acquire(self, **options: Unpack[TryOptions]) -> Permit | None:
        """Acquires a permit if one is free now; returns ``None`` otherwise."""
        hold = self._palisade._try_take(self._key, self._mode, options)
        return None if hold is None else Permit(hold)


class Observation:
    """The changes of the leader: iterate over it. ``close`` ends it."""

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
        """Ends the iteration, and closes its connection. May be called while another thread waits for the next
        change."""
        _run(self._watch.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Election:
    """An election: one leader among many candidates.

    The leader holds the lock of this name and has proclaimed that. Its *term* is larger than that of every earlier
    leader. A leader sends its term with each write to a shared resource, which refuses a term smaller than the largest
    it has seen: a paused leader does not know yet that another one leads.
    """

    def __init__(self, palisade: Palisade, name: Key) -> None:
        self._palisade = palisade
        self._key = checked_key(name)

    def campaign(self, value: str | bytes, **options: Unpack[LockOptions]) -> Leadership:
        """Waits in turn until this candidate leads, and proclaims ``value``, at most 1002 bytes.

        Every observer that asks afterwards sees this leader or a later one. Raises ``NotAcquired``, as
        ``Palisade.lock``.
        """
        asked = Asked(self._key, (), _threaded(options))
        locks = self._palisade._locks
        return Leadership(background().run(lambda: campaign(locks(), asked, value), _discarded))

    def leader(self) -> Leader | None:
        """Returns the leader that the server reports now, or ``None`` if nobody leads.

        The leader may have gone by the time this returns: send it nothing that must not be done twice, unless with its
        term. Raises ``Guarded``: the server may have forgotten who leads.
        """
        return _run(lambda: leader_now(self._palisade._locks().connections, self._key))

    def observe(self) -> Observation:
        """Reports each change of the leader from now on, beginning with the present state; ``None`` if nobody leads.

        Terms grow, and within one term the sequence. While the server is unreachable or guarded, nothing is reported,
        and the last report is the best knowledge there is. The iteration holds one connection, and does not poll. It
        ends when it, or the ``Palisade``, is closed.
        """

        async def watch() -> Watch:
            return Watch(self._palisade._locks().connections, self._key)

        return Observation(_run(watch))


class Job:
    """A job that runs unless it ran a short while ago; ``Palisade.once`` creates it. Also a decorator."""

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
        """Runs ``work`` with the lock if the lock is free, and skips it otherwise.

        Raises ``LockLost`` if the lock was lost before ``work`` had ended, and ``work`` did not raise itself.
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
    """Locks on one server with the Palisade module, or on several through a ``palisade agent``.

    It opens connections of its own when they are needed: one for commands that are answered at once, and one for each
    wait and each watch. Any number of threads may use it. ``with Palisade(…) as locks`` closes it at the end.
    """

    def __init__(self, address: str | Client, *, answer_within: Seconds = 3.0, **defaults: Unpack[LockOptions]) -> None:
        """Creates a client of ``address``: ``redis://[user:password@]host:port``, ``rediss://…`` or ``unix:///path``.

        It may also be a client of redis-py. ``answer_within`` is the server's time to answer; waiting for a lock does
        not count. The rest are the default options of every lock.
        """
        self._aio = aio.Palisade(address, answer_within=answer_within, **cast("LockOptions", _threaded(defaults)))
        self._locks = self._aio._locks

    def lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """Acquires a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released.

        ``with locks.lock(key) as lock`` releases it at the end of the block.

        Raises ``NotAcquired``: not in time. ``Guarded``, ``NoQuorum``, ``Unavailable``, ``Misconfigured``,
        ``ServerError``: no answer could be had.
        """
        return Lock(self._take(key, (), options))

    def try_lock(self, key: Key, **options: Unpack[TryOptions]) -> Lock | None:
        """Acquires the lock if it is free now; returns ``None`` otherwise."""
        hold = self._try_take(key, (), options)
        return None if hold is None else Lock(hold)

    def read_lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """Acquires the lock together with other readers, for callers that do not change what it protects. See
        ``lock``."""
        return Lock(self._take(key, ("SHARED",), options))

    def write_lock(self, key: Key, **options: Unpack[LockOptions]) -> Lock:
        """Acquires the lock alone. Neither readers nor writers pass an earlier waiter. See ``lock``."""
        return Lock(self._take(key, (), options))

    def adopt(self, key: Key, owner: str, token: int, **options: Unpack[TryOptions]) -> Lock:
        """Takes over a lock that another program has handed over (``Lock.hand_over``), and keeps it.

        So the one who enqueues a job acquires the lock, and the worker releases it. Raises ``LockLost``: the lock was no
        longer held with that token.
        """
        asked = Asked(checked_key(key), (), _threaded(options))
        return Lock(background().run(lambda: self._locks().adopt(asked, owner, token), Hold.leave))

    @contextmanager
    def lock_all(self, keys: Iterable[Key], **options: Unpack[LockOptions]) -> Iterator[list[Lock]]:
        """Holds several locks for a block, all or none, waiting for each in turn. ``wait`` limits all of them together.

        They are acquired in the order of their bytes, so callers that acquire several like this never wait for each
        other in a circle. That holds only for callers without other locks. A key that is named twice is acquired once.
        """
        with ExitStack() as held:
            ordered = in_order(keys, cast("dict[str, Any]", options), self._aio._defaults)
            all_held: list[Lock] = []
            for key, rest in ordered:
                all_held.append(held.enter_context(self.lock(key, **cast("LockOptions", rest))))
                # One may have been lost while the next one was waited for.
                for lock in all_held:
                    lock._check()
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

    def close(self) -> None:
        """Releases all held locks, ends all waits, and closes the connections.

        The locks are lost (``closed``), and the waits raise ``Closed``. Returns once the server has answered.
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
    """Returns ``options`` with ``on_lost`` on a thread of its own: it may take long, and acquire locks itself."""
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
