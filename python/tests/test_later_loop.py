"""A Palisade that is closed in a later event loop than that of its locks."""

from __future__ import annotations

import asyncio

import pytest

from palisade_client import Loss, LossReason, aio
from servers import Node
from test_processes import in_child


@pytest.mark.parametrize("cancels_tasks", [True, False])
def test_it_is_closed_after_the_loop_in_which_a_lock_was_left(cancels_tasks: bool, a_node: Node, key: str) -> None:
    # The tasks of a loop that did not cancel them stay behind, so the process ends with them.
    in_child(lambda: leave_and_close(cancels_tasks, a_node, key))


def leave_and_close(cancels_tasks: bool, node: Node, key: str) -> None:
    locks = aio.Palisade(node.url)
    told: list[Loss] = []

    async def take() -> tuple[aio.Lock, asyncio.Task[Loss | None]]:
        lock = await locks.lock(key, on_lost=told.append)
        waiting = asyncio.create_task(lock.lost.wait())
        await asyncio.sleep(0)
        return lock, waiting

    if cancels_tasks:
        lock, _ = asyncio.run(take())
    else:
        loop = asyncio.new_event_loop()
        lock, _ = loop.run_until_complete(take())
        loop.close()
    asyncio.run(locks.close())
    assert not lock.is_valid
    assert lock.lost.loss == Loss.of(LossReason.CLOSED)
    assert told == [lock.lost.loss]
