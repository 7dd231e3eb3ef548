"""Programs do 500 jobs, while some of them are killed or stopped, and two of five nodes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import ROOT, Agent, Node
from waiting import at_last

PROGRAM = Path(__file__).parent / "programs" / "pool_worker.py"
KILLED = ["of a killed one", "of another killed one"]
STOPPED = ["of a stopped one", "of another stopped one"]
JOBS = KILLED + STOPPED + [f"job {number}" for number in range(496)]


class Pool:
    """Workers that use the locks of an agent, and a table behind gates."""

    def __init__(self, agent: Agent, table: Node) -> None:
        self._paths = [agent.url, table.path]
        self.table = table.outside.client
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *first_job: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(PROGRAM), *self._paths, *first_job]
        worker = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")})
        self.workers.append(worker)
        return worker

    def open_jobs(self) -> int:
        return int(self.table.scard("open"))

    def await_open(self, number: int) -> None:
        """Waits as long as jobs are being done."""
        while (left := self.open_jobs()) > number:
            at_last(f"one of {left} jobs is done", lambda left=left: self.open_jobs() < left)  # type: ignore[misc]


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.fixture
def pool(agent: Agent) -> Iterator[Pool]:
    with Node() as table:
        pool = Pool(agent, table)
        yield pool
        for worker in pool.workers:
            worker.kill()
            worker.wait()


def test_no_job_is_done_twice_though_workers_and_nodes_fail(pool: Pool, agent: Agent) -> None:
    pool.table.sadd("open", *JOBS[len(KILLED + STOPPED) :])
    killed, stopped = [pool.start(job) for job in KILLED], [pool.start(job) for job in STOPPED]
    at_last("each has begun its job", lambda: all(pool.table.smismember("open", KILLED + STOPPED)))
    for worker in killed:
        worker.kill()
    others = [pool.start()]
    for worker in stopped:
        worker.send_signal(signal.SIGSTOP)
    pool.await_open(len(JOBS) // 2)
    for node in agent.nodes[:2]:
        node.kill()
    others.append(pool.start())
    pool.await_open(0)
    for worker in stopped:
        worker.send_signal(signal.SIGCONT)
    assert [worker.wait() for worker in stopped + others] == [0, 0, 0, 0]

    assert set(STOPPED) <= set(pool.table.smembers("refused")), "a late write passed"
    for job in JOBS:
        row = pool.table.lrange(f"row:{job}", 0, -1)
        tokens = sorted({int(line.split()[0]) for line in row})
        assert row == [f"{token} begun" for token in tokens] + [f"{tokens[-1]} done"], job
