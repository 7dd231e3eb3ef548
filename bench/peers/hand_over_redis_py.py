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

TTL_S = 60


async def main():
    port = None
    clients = []
    tasks = []
    gate = asyncio.Event()
    # Of the lock that is handed over: turns of each client, times from a release to the next holder's answer.
    turns, delays_ns = [], []
    released_ns = None
    taken = asyncio.Condition()

    async def hello(question):
        nonlocal port
        port = question["port"]
        return {"version": f"redis-py {version('redis')}"}

    async def client(n, name, sleep_s, hold_max_s):
        nonlocal released_ns
        while len(clients) <= n:
            clients.append(Redis(host="127.0.0.1", port=port))
        lock = Lock(clients[n], name, timeout=TTL_S, sleep=sleep_s)
        while True:
            await lock.acquire()
            now = monotonic_ns()
            if released_ns is not None:
                delays_ns.append(now - released_ns)
            turns[n] += 1
            async with taken:
                taken.notify_all()
            if not gate.is_set():
                await gate.wait()
            await asyncio.sleep(random.uniform(0, hold_max_s))
            async with taken:
                released_ns = monotonic_ns()
                await lock.release()
                await taken.wait()

    async def start(question):
        nonlocal released_ns
        gate.clear()
        released_ns = None
        turns[:] = [0] * (question["waiters"] + 1)
        delays_ns.clear()
        settings = question["name"], question["sleep_s"], question["hold_max_s"]
        # The first one holds it.
        for n in range(question["waiters"] + 1):
            tasks.append(asyncio.create_task(client(n, *settings)))
            while turns[0] == 0:
                await asyncio.sleep(0.001)
        return {}

    async def go(_):
        gate.set()
        return {}

    async def stop(_):
        answer = {"delays_ns": list(delays_ns), "turns": list(turns)}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()
        # What was cancelled may have left half an answer behind.
        for one in clients:
            await one.aclose()
        clients.clear()
        return answer

    await answer_all({"hello": hello, "start": start, "go": go, "stop": stop})


asyncio.run(main())
