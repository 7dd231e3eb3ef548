"""Clients that wait for redis-py's Lock, driven by palisade-bench.

Each has a connection of its own. Whoever gives the lock back queues again when the next one has it.
"""

import asyncio
import random
from importlib.metadata import version
from time import monotonic_ns

from redis.asyncio import Redis
from redis.asyncio.lock import Lock

from questions import answer_all

# The time between two tries: redis-py's default, and a shorter one.
SLEEP_S = {"redis-py": 0.1, "redis-py, every 10 ms": 0.01}


async def main():
    port = sleep_s = ttl_s = None
    gate = asyncio.Event()
    tasks = []
    # Turns of each client, and times from a release to the next holder's answer.
    turns, delays_ns = [], []
    released_ns = None
    # Done when the next one has the lock.
    taken = None

    async def hello(question):
        nonlocal port, sleep_s, ttl_s
        port, sleep_s, ttl_s = question["ports"][0], SLEEP_S[question["client"]], question["ttl_ms"] / 1_000
        return {"version": f"redis-py {version('redis')}"}

    async def client(n, name, hold_s):
        nonlocal released_ns, taken
        lock = Lock(Redis(host="127.0.0.1", port=port), name, timeout=ttl_s, sleep=sleep_s)
        while True:
            await lock.acquire()
            now = monotonic_ns()
            if taken is not None:
                delays_ns.append(now - released_ns)
                taken.set_result(None)
            turns[n] += 1
            await gate.wait()
            await asyncio.sleep(random.uniform(*hold_s))
            taken = by_next = asyncio.get_running_loop().create_future()
            released_ns = monotonic_ns()
            await lock.release()
            await by_next

    async def start(question):
        turns[:] = [0] * (question["waiters"] + 1)
        settings = question["name"], question["hold_s"]
        for n in range(question["waiters"] + 1):
            tasks.append(asyncio.create_task(client(n, *settings)))
            # The first one holds it.
            while turns[0] == 0:
                await asyncio.sleep(0.001)
        return {}

    async def go(_):
        gate.set()
        return {}

    async def result(_):
        # A task that ended has failed.
        for task in tasks:
            if task.done():
                task.result()
        return {"delays_ns": list(delays_ns), "turns": list(turns)}

    await answer_all({"hello": hello, "start": start, "go": go, "result": result})


asyncio.run(main())
