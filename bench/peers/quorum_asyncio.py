"""Locks of redis-py, or Redlock by pottery over redis-py or by aioredlock over aioredis, driven by palisade-bench."""

import asyncio
import logging
import uuid
from importlib.metadata import version
from time import monotonic_ns

from aioredlock import Aioredlock
from pottery import AIORedlock
from redis.asyncio import Redis
from redis.asyncio.lock import Lock

from questions import answer_all

# They log every node that does not answer.
logging.disable()


class RedisPy:
    packages = {"redis-py": "redis"}

    def __init__(self, ports):
        self.redis = Redis(host="127.0.0.1", port=ports[0])

    async def acquire(self, name):
        lock = Lock(self.redis, name, timeout=10)
        return lock if await lock.acquire(blocking=False) else None

    async def release(self, lock):
        await lock.release()


class Pottery:
    # By name: redis-py's package has the name of the server.
    packages = {"pottery": "pottery", "redis-py": "redis"}

    def __init__(self, ports):
        self.masters = {Redis(host="127.0.0.1", port=port) for port in ports}

    async def acquire(self, name):
        lock = AIORedlock(key=name, masters=self.masters)
        return lock if await lock.acquire(blocking=False) else None

    async def release(self, lock):
        await lock.release()


class OfAioredlock:
    packages = {"aioredlock": "aioredlock", "aioredis": "aioredis"}

    def __init__(self, ports):
        self.locks = Aioredlock([{"host": "127.0.0.1", "port": port} for port in ports])

    async def acquire(self, name):
        return await self.locks.lock(name)

    async def release(self, lock):
        await self.locks.unlock(lock)


CLIENTS = {"redis-py": RedisPy, "pottery": Pottery, "aioredlock": OfAioredlock}


async def main():
    client = None

    async def hello(question):
        nonlocal client
        of = CLIENTS[question["client"]]
        client = of(question["ports"])
        return {"version": ", ".join(f"{name} {version(package)}" for name, package in of.packages.items())}

    async def slice_of(question):
        start = monotonic_ns()
        end = start + question["ms"] * 1_000_000
        acquire_ns, release_ns, failed = [], [], 0

        async def task():
            nonlocal failed
            while monotonic_ns() < end:
                asked = monotonic_ns()
                try:
                    lock = await asyncio.wait_for(client.acquire(uuid.uuid4().hex), question["most_s"])
                    held = monotonic_ns()
                    if lock is None:
                        failed += 1
                        continue
                    acquire_ns.append(held - asked)
                    await asyncio.wait_for(client.release(lock), question["most_s"])
                    release_ns.append(monotonic_ns() - held)
                except Exception:
                    failed += 1

        await asyncio.gather(*(task() for _ in range(question["tasks"])))
        elapsed_ns = monotonic_ns() - start
        return {"acquire_ns": acquire_ns, "release_ns": release_ns, "failed": failed, "elapsed_ns": elapsed_ns}

    await answer_all({"hello": hello, "slice": slice_of})


asyncio.run(main())
