"""A program of a pool: it does open jobs, each under a lock of its own, until none is open.

Each job has a row in a table behind a gate: ``TOKEN begun`` and ``TOKEN done``. The program does what a paused program does:
after its work it writes without another look at its lock.
"""

from __future__ import annotations

import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import redis

from palisade_client import Lock, NoQuorum, NotAcquired, Palisade

THREADS = 4
TTL = 1.5
WORK = 0.02

at_locks, at_table, *first_job = sys.argv[1:]
locks = Palisade(at_locks, ttl=TTL, answer_within=20)
table = redis.Redis(unix_socket_path=at_table, decode_responses=True)


class Refused(Exception):
    """The gate refused the token."""


def write(lock: Lock, job: str, *command: str) -> object:
    """Returns the reply of a command that passes the job's gate."""
    try:
        return table.execute_command("LOCK.GATE", f"gate:{job}", lock.token, "COMMAND", *command)  # type: ignore[no-untyped-call]
    except redis.ResponseError as refused:
        if not str(refused).startswith("FENCED "):
            raise
        assert not lock.is_valid, f"two locks of one job: {job}"
        raise Refused from refused


def do(lock: Lock, job: str, is_slow: bool) -> None:
    # Behind an agent the token may rise later.
    row, token = f"row:{job}", lock.token
    # This shuts out all earlier holders.
    last = write(lock, job, "LINDEX", row, "-1")
    if not str(last).endswith("done"):
        write(lock, job, "RPUSH", row, f"{token} begun")
        if is_slow:
            table.sadd("open", job)
            while not str(table.lindex(row, -1)).endswith("done"):
                time.sleep(0.005)
        else:
            time.sleep(WORK)
        write(lock, job, "RPUSH", row, f"{token} done")
    table.srem("open", job)


def take(job: str, is_slow: bool = False) -> None:
    """Does a job, unless another worker has it for long. A slow one takes until another worker has done the job."""
    # The nodes may be too slow.
    with contextlib.suppress(NotAcquired, NoQuorum):
        lock = locks.lock(f"lock:{job}", wait=2 * TTL)
        try:
            do(lock, job, is_slow)
        except Refused:
            table.sadd("refused", job)
        lock.release()


def do_open_jobs() -> None:
    while job := table.srandmember("open"):
        take(str(job))


with ThreadPoolExecutor(THREADS + 1) as threads:
    work = [threads.submit(take, job, is_slow=True) for job in first_job]
    work += [threads.submit(do_open_jobs) for _ in range(THREADS)]
    for done in work:
        done.result()
locks.close()
