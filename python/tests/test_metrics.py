"""The events of locks, as ``LockMetrics`` counts them for Prometheus."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from conftest import Bench
from palisade_client import BadArgument, Kind, LockListener, NoQuorum, NotAcquired, Unavailable
from palisade_client.prometheus import LockMetrics
from servers import ROOT
from waiting import eventually


class Counted:
    """Metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.listener = LockMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"palisade_client_{name}", {"class": "orders", "mode": "exclusive", **labels})

    async def becomes(self, expected: float, name: str, **labels: str) -> None:
        """Waits until this was counted."""
        await eventually(f"{name} {labels} is {expected}", lambda: self.value(name, **labels) == expected)


@pytest.fixture
def counted() -> Counted:
    return Counted()


async def test_each_end_of_an_acquisition_is_counted_once(on_node: Bench, key: str, counted: Counted) -> None:
    locks = on_node.locks(listener=counted.listener, lock_class="orders")
    async with await locks.lock(key):
        await counted.becomes(1, "held")
        assert await locks.try_lock(key) is None
        with pytest.raises(NotAcquired):
            await locks.lock(key, wait=0.02)
        waits = asyncio.ensure_future(on_node.locks(listener=counted.listener, lock_class="orders").lock(key))
        await on_node.outside.waiters(key, 1)
    async with await waits:
        await counted.becomes(1, "hold_seconds_count")
    with pytest.raises(BadArgument):
        await locks.lock(key, ttl=-1)
    await counted.becomes(0, "held")
    for outcome, number in [("granted", 2), ("contended", 1), ("timed_out", 1)]:
        await counted.becomes(number, "acquisitions_total", outcome=outcome)
        await counted.becomes(number, "wait_seconds_count", outcome=outcome)


async def test_a_loss_is_counted_with_its_reason_and_extensions_too(on_node: Bench, key: str, counted: Counted) -> None:
    locks = on_node.locks(listener=counted.listener, lock_class="orders", ttl=2)
    lock = await locks.read_lock(key)
    await counted.becomes(1, "extensions_total", mode="shared", outcome="extended")
    on_node.outside.say("LOCK.BREAK", key)
    await counted.becomes(1, "losses_total", mode="shared", reason="taken_away")
    await counted.becomes(0, "held", mode="shared")
    assert not await lock.release()
    await counted.becomes(1, "hold_seconds_count", mode="shared")


async def test_a_server_that_is_away_is_counted_and_a_listener_that_fails_changes_nothing(
    face: str, key: str, counted: Counted, on_node: Bench
) -> None:
    away = on_node.locks("redis://127.0.0.1:1", listener=counted.listener, lock_class="orders")
    with pytest.raises((NoQuorum, Unavailable)):
        await away.lock(key, wait=0)
    await counted.becomes(1, "acquisitions_total", outcome="no_quorum")

    class Failing(LockListener):
        def acquired(self, kind: Kind, waited: float) -> None:
            raise ZeroDivisionError

    lock = await on_node.locks(listener=Failing()).lock(key)
    assert await lock.release()
    for wrong in ({"listener": print}, {"lock_class": 7}):
        with pytest.raises(BadArgument):
            on_node.locks(**wrong)


def test_names_and_labels_are_those_of_the_crate(counted: Counted) -> None:
    page = (ROOT / "docs" / "telemetry.md").read_text()
    of_crate = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    metrics = re.findall(r"^# TYPE (\w+) (\w+)", generate_latest(counted.registry).decode(), re.MULTILINE)
    names = {name for name, kind in metrics if not name.endswith("_created")}
    assert names <= of_crate
    assert len(names) == 6
