"""Redlock by pottery's AIORedlock over redis-py, driven by palisade-bench."""

import asyncio
import logging
import uuid
from importlib.metadata import version
from time import monotonic_ns

from pottery import AIORedlock
from redis.asyncio import Redis

from questions import answer_all

# It logs every node that does not answer.
logging.disable()


async def main():
    masters = set()

    async def hello(question):
        masters.update(Redis(host="127.0.0.1", port=port) for port in question["ports"])
        return {"version": f"pottery {version('pottery')}, redis-py {version('redis')}"}

    async def slice_of(question):
        start = monotonic_ns()
        end = start + question["ms"] * 1_000_000
        most_s = question.get("most_s", 3)
        acquire_ns, release_ns, failed = [], [], 0

        async def task():
            nonlocal failed
            while monotonic_ns() < end:
                lock = AIORedlock(key=uuid.uuid4().hex, masters=masters)
                asked = monotonic_ns()
                try:
                    if not await asyncio.wait_for(lock.acquire(blocking=False), most_s):
                        failed += 1
                        continue
                    held = monotonic_ns()
                    acquire_ns.append(held - asked)
                    await asyncio.wait_for(lock.release(), most_s)
                    release_ns.append(monotonic_ns() - held)
                except Exception:
                    failed += 1

        await asyncio.gather(*(task() for _ in range(question["tasks"])))
        elapsed_ns = monotonic_ns() - start
        return {"acquire_ns": acquire_ns, "release_ns": release_ns, "failed": failed, "elapsed_ns": elapsed_ns}

    await answer_all({"hello": hello, "slice": slice_of})


asyncio.run(main())
