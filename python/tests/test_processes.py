"""Processes that hold locks are forked, killed or end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path

import pytest

from palisade_client import LockLost, LossReason, Palisade
from servers import ROOT, Agent, Node
from waiting import at_last

PROGRAM = Path(__file__).parent / "programs" / "ending.py"


def in_child(work: Callable[[], object]) -> None:
    """Runs ``work`` in a fork of this process, which ends without any cleanup, as ``multiprocessing`` does."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forked_process_neither_extends_nor_releases_the_locks_of_its_parent(server: Node | Agent, key: str) -> None:
    with Palisade(server.url) as locks:
        lock = locks.lock(key, ttl=30)
        observation = locks.election(f"{key}:e").observe()
        assert next(observation) is None

        def child() -> None:
            assert not lock.is_valid
            assert lock.lost.loss is not None
            assert lock.lost.loss.reason == LossReason.FORKED
            for ask in (lock.extend, lock.reenter):
                with pytest.raises(LockLost, match="forked"):
                    ask()
            with pytest.raises(LockLost, match="forked"), lock:
                pass
            assert not lock.release()
            assert next(observation, "ended") == "ended"
            observation.close()
            # The child has locks of its own, by the same object.
            assert locks.try_lock(key) is None
            with locks.lock(f"{key}:2") as own:
                assert own.is_valid
            locks.close()

        in_child(child)
        assert lock.is_valid
        assert server.outside.users(key)[0] == 1
        lock.extend()
        assert lock.release()
        with locks.lock(key):
            pass
        observation.close()


def test_a_block_that_a_forked_process_leaves_fails_there_and_nowhere_else(server: Node | Agent, key: str) -> None:
    with Palisade(server.url) as locks:
        with locks.lock(key, ttl=30) as lock:
            child = os.fork()
            if child == 0:
                try:
                    lock.__exit__(None, None, None)
                except LockLost:
                    os._exit(0)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert lock.is_valid
            assert server.outside.users(key)[0] == 1
        at_last("it is free", lambda: server.outside.users(key)[0] == 0)


def _nightly(url: str, key: str, start: object, count: object) -> None:
    locks = Palisade(url)

    @locks.once(key, min_hold=50)
    def job() -> None:
        with count.get_lock():  # type: ignore[attr-defined]
            count.value += 1  # type: ignore[attr-defined]

    start.wait()  # type: ignore[attr-defined]
    job()
    locks.close()


@pytest.mark.parametrize(("at", "context"), [("a_node", get_context("spawn")), ("an_agent", get_context("fork"))], ids=["node", "agent"])
def test_a_job_runs_once_though_several_processes_start_it(
    request: pytest.FixtureRequest, key: str, at: str, context: SpawnContext | ForkContext
) -> None:
    server: Node | Agent = request.getfixturevalue(at)
    start, count = context.Barrier(4), context.Value("i", 0)
    children = [context.Process(target=_nightly, args=(server.url, key, start, count)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert count.value == 1
    assert server.outside.users(key)[0] == 1, "it stays held for min_hold"


def run(step: str, url: str, key: str) -> subprocess.Popen[str]:
    """Starts a step of the tests' own program."""
    words = [sys.executable, "-W", "always", str(PROGRAM), url, key, step]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


STEPS = ["holds", "idle", "closes", "closes_async", "left_async", "collected", "collected_async", "daemon_waits"]
STEPS += ["pending_async", "held_async", "cancelled_async", "driven_by_hand", "at_once", "observed", "forks"]


@pytest.mark.parametrize("step", STEPS)
def test_a_program_ends_by_itself_and_says_nothing(a_node: Node, key: str, step: str) -> None:
    with run(step, a_node.url, key) as program:
        try:
            wrote, _ = program.communicate(timeout=120)
        finally:
            program.kill()
    assert (program.returncode, wrote) == (0, f"{step}\n")
    if step == "pending_async":
        assert a_node.outside.users(key) == (1, 0), "who waited left the queue"


def test_ctrl_c_ends_a_wait_and_leaves_nothing(server: Node | Agent, key: str) -> None:
    with Palisade(server.url) as locks:
        with locks.lock(key):
            for step in ("waits", "waits_async"):
                program = run(step, server.url, key)
                at_last("it waits", lambda: server.outside.users(key)[1] == 1)
                program.send_signal(signal.SIGINT)
                wrote, _ = program.communicate()
                assert "KeyboardInterrupt" in wrote
                assert program.returncode in (1, -signal.SIGINT)
                at_last("nobody waits", lambda: server.outside.users(key)[1] == 0)
        at_last("it is free", lambda: server.outside.users(key) == (0, 0))


def test_a_process_that_was_stopped_for_longer_than_its_lease_finds_that_at_the_first_look(a_node: Node, key: str) -> None:
    with run("stopped", a_node.url, key) as program, Palisade(a_node.url) as locks:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        program.send_signal(signal.SIGSTOP)
        at_last("its lease ends", lambda: a_node.outside.users(key)[0] == 0)
        lock = locks.lock(key)
        program.send_signal(signal.SIGCONT)
        wrote, _ = program.communicate()
        assert wrote == "asleep False\n"
        assert lock.release(), "the one that woke up took nothing away"
