"""Redlock by redlock-py over redis-py, in threads, driven by palisade-bench."""

import asyncio
import logging
import threading
import uuid
from importlib.metadata import version
from time import monotonic, monotonic_ns

from redlock import Redlock

from questions import answer_all

# It logs every node that does not answer.
logging.disable()


async def main():
    locks = None

    async def hello(question):
        nonlocal locks
        locks = Redlock([{"host": "127.0.0.1", "port": port} for port in question["ports"]])
        return {"version": f"redlock-py {version('redlock-py')}, redis-py {version('redis')}"}

    async def slice_of(question):
        start = monotonic_ns()
        end = start + question["ms"] * 1_000_000
        acquire_ns, release_ns, failed = [], [], []

        def task():
            while monotonic_ns() < end:
                asked = monotonic_ns()
                try:
                    lock = locks.lock(uuid.uuid4().hex, 10_000)
                    held = monotonic_ns()
                    if not lock:
                        failed.append(1)
                        continue
                    acquire_ns.append(held - asked)
                    locks.unlock(lock)
                    release_ns.append(monotonic_ns() - held)
                except Exception:
                    failed.append(1)

        threads = [threading.Thread(target=task, daemon=True) for _ in range(question["tasks"])]
        for thread in threads:
            thread.start()
        # A thread that hangs in a call is left behind.
        last = monotonic() + question["ms"] / 1_000 + question["most_s"]
        for thread in threads:
            thread.join(max(0.0, last - monotonic()))
        hanging = sum(thread.is_alive() for thread in threads)
        elapsed_ns = monotonic_ns() - start
        failed = len(failed) + hanging
        return {
            "acquire_ns": list(acquire_ns),
            "release_ns": list(release_ns),
            "failed": failed,
            "elapsed_ns": elapsed_ns,
        }

    await answer_all({"hello": hello, "slice": slice_of})


asyncio.run(main())
