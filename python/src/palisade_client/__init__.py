"""Locks, permits and elections with fencing tokens, on a Redis or Valkey server with the Palisade module.

An agent offers the same on several servers.

>>> from palisade_client import Palisade
>>> locks = Palisade("redis://localhost:6379")
>>> with locks.lock("orders:42", ttl=10) as lock:
...     pay(42, lock.token)

``palisade_client.aio`` is the same for programs with asyncio.
"""

from ._gated import AsyncFencedRedis, FencedRedis
from ._leading import Leader
from ._moving import AsyncDualLock, DualLock
from ._once import Once
from ._sync import Election, Job, Leadership, Lock, Lost, Observation, Palisade, Permit, Semaphore
from .aio import Palisade as AsyncPalisade
from .errors import (
    BadArgument,
    Closed,
    Fenced,
    Guarded,
    Holder,
    LockLost,
    Misconfigured,
    NoQuorum,
    NotAcquired,
    PalisadeError,
    ServerError,
    Unavailable,
    UnexpectedReply,
)
from .listening import Kind, LockListener
from .loss import Loss, LossReason, Released
from .options import Key, LockOptions, Seconds, TryOptions

__all__ = [
    "AsyncDualLock",
    "AsyncFencedRedis",
    "AsyncPalisade",
    "BadArgument",
    "Closed",
    "DualLock",
    "Election",
    "Fenced",
    "FencedRedis",
    "Guarded",
    "Holder",
    "Job",
    "Key",
    "Kind",
    "Leader",
    "Leadership",
    "Lock",
    "LockListener",
    "LockLost",
    "LockOptions",
    "Loss",
    "LossReason",
    "Lost",
    "Misconfigured",
    "NoQuorum",
    "NotAcquired",
    "Observation",
    "Once",
    "Palisade",
    "PalisadeError",
    "Permit",
    "Released",
    "Seconds",
    "Semaphore",
    "ServerError",
    "TryOptions",
    "Unavailable",
    "UnexpectedReply",
]
