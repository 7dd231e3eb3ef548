"""Metrics of locks for Prometheus, with the names of the crate for Rust. Needs ``palisade-client[prometheus]``.

>>> locks = Palisade("redis://localhost:6379", listener=LockMetrics(), lock_class="orders")
"""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from .errors import Closed, Guarded, NoQuorum, NotAcquired, Unavailable
from .listening import Kind, LockListener
from .loss import Loss

_KIND = ("class", "mode")
# From a free lock on a near node to a queue of minutes, in seconds.
_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
_REASONS = {"held": "contended", "timed-out": "timed_out", "too-late": "expired"}


class LockMetrics(LockListener):
    """Counts locks in a registry. One serves every ``Palisade`` of a program. docs/telemetry.md has the names."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        ended = (*_KIND, "outcome")
        self._acquisitions = Counter("palisade_client_acquisitions", "Acquisitions, by how they ended", ended, registry=registry)
        self._wait = Histogram("palisade_client_wait_seconds", "From the call to its end", ended, registry=registry, buckets=_BUCKETS)
        self._held = Gauge("palisade_client_held", "Locks held now", _KIND, registry=registry)
        self._hold = Histogram(
            "palisade_client_hold_seconds", "From the grant to the release or the loss", _KIND, registry=registry, buckets=_BUCKETS
        )
        self._extensions = Counter("palisade_client_extensions", "Extensions of held locks", ended, registry=registry)
        self._losses = Counter("palisade_client_losses", "Locks that were lost", (*_KIND, "reason"), registry=registry)

    def acquired(self, kind: Kind, waited: float) -> None:
        self._ended(kind, waited, "granted")
        self._held.labels(kind.lock_class, kind.mode).inc()

    def failed(self, kind: Kind, waited: float, error: BaseException) -> None:
        self._ended(kind, waited, _outcome(error))

    def extended(self, kind: Kind, is_extended: bool) -> None:
        self._extensions.labels(kind.lock_class, kind.mode, "extended" if is_extended else "failed").inc()

    def released(self, kind: Kind, held_for: float) -> None:
        self._held.labels(kind.lock_class, kind.mode).dec()
        self._hold.labels(kind.lock_class, kind.mode).observe(held_for)

    def lost(self, kind: Kind, held_for: float, loss: Loss) -> None:
        self.released(kind, held_for)
        self._losses.labels(kind.lock_class, kind.mode, loss.reason.value.replace("-", "_")).inc()

    def _ended(self, kind: Kind, waited: float, outcome: str) -> None:
        self._acquisitions.labels(kind.lock_class, kind.mode, outcome).inc()
        self._wait.labels(kind.lock_class, kind.mode, outcome).observe(waited)


def _outcome(error: BaseException) -> str:
    if isinstance(error, NotAcquired):
        return _REASONS[error.reason]
    if isinstance(error, Guarded):
        return "guarded"
    if isinstance(error, (NoQuorum, Unavailable)):
        return "no_quorum"
    return "cancelled" if isinstance(error, (asyncio.CancelledError, Closed)) else "refused"
