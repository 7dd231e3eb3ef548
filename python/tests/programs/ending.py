"""Programs that end by themselves, or are ended: nothing of the package keeps them alive."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable

import redis
import redis.asyncio

# The daemons of a step.
daemons: list[threading.Thread] = []


@atexit.register
def give_daemons_time() -> None:
    """Registered before the package, so called after its end: what daemons print then is captured."""
    for daemon in daemons:
        daemon.join(0.5)


from palisade_client import Palisade, Released, _background, _connections, aio  # noqa: E402

url, key, step = sys.argv[1:]
# Tests that run in the background may ignore Ctrl-C, and a program inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Objects that are kept until the end.
left: list[object] = []


def holds() -> None:
    """Holds a lock, waits for its loss, and closes nothing."""
    lock = Palisade(url).lock(key, ttl=60)
    left.append(lock)
    threading.Thread(target=lock.lost.wait, daemon=True).start()


def idle() -> None:
    """Leaves connections of earlier waits."""
    locks = Palisade(url)
    first = locks.lock(key)
    threading.Timer(0.1, first.release).start()
    with locks.lock(key):
        pass


def closes() -> None:
    with Palisade(url) as locks:
        lock = locks.lock(key)
    assert lock.lost


def closes_async() -> None:
    async def main() -> None:
        async with aio.Palisade(url) as locks:
            lock = await locks.lock(key)
        assert lock.lost

    asyncio.run(main())


def left_async() -> None:
    """Closes nothing, in one event loop after the other."""
    locks = aio.Palisade(url)

    async def main(key: str) -> None:
        lock = await locks.lock(key)
        assert lock.is_valid
        left.append(lock)

    asyncio.run(main(key))
    asyncio.run(main(f"{key}:2"))


def collected() -> None:
    """Closes nothing, and the garbage collector finds it while other locks are used."""
    server = redis.Redis(unix_socket_path=url.removeprefix("unix://"))

    def connections() -> int:
        return len(server.client_list())

    before = connections()
    for _ in range(5):
        assert Palisade(url).lock(key).release()
        gc.collect()
    until = time.monotonic() + 60
    while connections() > before:
        assert time.monotonic() < until, "connections stay open"
        time.sleep(0.005)


def collected_async() -> None:
    async def main() -> None:
        for _ in range(5):
            assert await (await aio.Palisade(url).lock(key)).release()
            gc.collect()
        # A lock keeps its connections alive by itself.
        lock = await aio.Palisade(url).lock(key, ttl=1)
        for _ in range(15):
            gc.collect()
            await asyncio.sleep(0.1)
        assert lock.is_valid
        assert await lock.release()

    asyncio.run(main())


def daemon_waits() -> None:
    """Runs daemons that wait for a lock, wait for its loss, and keep checking for it."""
    locks = Palisade(url)
    lock = locks.lock(key, ttl=60)
    left.append(lock)

    def looks() -> None:
        while lock.lost.wait(0.001) is None:
            pass

    waits: list[Callable[[], object]] = [lambda: locks.lock(key), lock.lost.wait, looks]
    daemons.extend(threading.Thread(target=wait, daemon=True) for wait in waits)
    for daemon in daemons:
        daemon.start()
    server = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True, protocol=3)
    while server.execute_command("LOCK.INFO", key, "WAITERS", 1)["waiters"] == 0:  # type: ignore[no-untyped-call]
        time.sleep(0.005)


def pending_async() -> None:
    """Ends an event loop while two acquisitions wait, one as a task of its own."""

    async def main() -> None:
        locks, others = aio.Palisade(url), aio.Palisade(url)
        left.append(await locks.lock(key, ttl=60))
        waits: list[asyncio.Future[object]] = [
            asyncio.create_task(locks.lock(key, wait=60)),
            asyncio.ensure_future(others.lock(key, wait=60)),
        ]
        left.append(waits)
        server = redis.asyncio.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True, protocol=3)
        while (await server.execute_command("LOCK.INFO", key, "WAITERS", 2))["waiters"] < 2:  # type: ignore[no-untyped-call]
            await asyncio.sleep(0.005)
        await server.aclose()

    asyncio.run(main())


def held_async() -> None:
    """Ends an event loop while tasks hold locks, which release them as they are cancelled."""

    async def hold(locks: aio.Palisade, key: str, held: asyncio.Event) -> None:
        async with locks.lock(key, ttl=60):
            held.set()
            try:
                await asyncio.sleep(1000)
            finally:
                # In a task of its own, which begins when the loop has begun to end.
                await asyncio.wait_for(asyncio.sleep(0.01), 60)

    async def main() -> None:
        for n in range(8):
            held = asyncio.Event()
            left.append(asyncio.create_task(hold(aio.Palisade(url), f"{key}:{n}", held)))
            await held.wait()

    asyncio.run(main())
    server = redis.Redis(unix_socket_path=url.removeprefix("unix://"))
    assert [server.exists(f"{key}:{n}") for n in range(8)] == [0] * 8, "they are released"


def cancelled_async() -> None:
    """Cancels all other tasks and waits for them, in a program that then releases a lock."""

    async def hold(locks: aio.Palisade, held: asyncio.Event) -> None:
        async with locks.lock(f"{key}:other", ttl=60):
            held.set()
            await asyncio.sleep(1000)

    async def main() -> None:
        locks, held = aio.Palisade(url), asyncio.Event()
        own = await locks.lock(key, ttl=60)
        left.append(asyncio.create_task(hold(locks, held)))
        await held.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        _, late = await asyncio.wait(others, timeout=5)
        assert not late, late
        assert await own.release() is Released.FREED

    asyncio.run(main())


def driven_by_hand() -> None:
    """Cancels all tasks of a loop that does not run, and then runs it until they have ended."""
    loop = asyncio.new_event_loop()

    async def main() -> None:
        locks = aio.Palisade(url)
        left.append(locks)
        async with locks.lock(key):
            pass

    async def end(tasks: set[asyncio.Task[object]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=5)
        assert not late, late

    loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    assert tasks
    for task in tasks:
        task.cancel()
    loop.run_until_complete(end(tasks))
    loop.close()


def at_once() -> None:
    """Ends a program without a loop. Whatever its end waits for in vain takes ten minutes."""
    _background._END_WITHIN = _connections._OTHERS_END_WITHIN = 600.0
    locks = Palisade(url)
    left.append(locks)
    with locks.lock(key):
        pass


def observed() -> None:
    """Leaves an observation. The event loop has just begun to close its connection when the program ends."""
    loop = _background.background().loop
    is_left, closes = threading.Event(), threading.Event()

    def be_busy() -> None:
        closes.set()
        time.sleep(0.3)

    for leader in Palisade(url).election(key).observe():
        assert leader is None
        loop.call_soon_threadsafe(is_left.wait)
        break
    loop.call_soon_threadsafe(loop.call_soon, be_busy)
    is_left.set()
    closes.wait()


def forks() -> None:
    """Ends a child as a program ends, with everything from its parent; the parent's locks are extended all the same."""
    # The warning is of Python 3.12 and later, which cannot know what threads do.
    warnings.simplefilter("ignore", DeprecationWarning)
    locks = Palisade(url)
    lock = locks.lock(key, ttl=30)
    if os.fork() == 0:
        with locks.lock(f"{key}:child"):
            return
    os.wait()
    lock.extend()
    assert lock.release()
    with locks.lock(key):
        print(step)
    sys.stdout.flush()
    os._exit(0)


def waits() -> None:
    with Palisade(url).lock(key):
        raise AssertionError("it is held")


def waits_async() -> None:
    async def main() -> None:
        async with aio.Palisade(url) as locks, locks.lock(key):
            raise AssertionError("it is held")

    asyncio.run(main())


def stopped() -> None:
    with Palisade(url) as locks:
        lock = locks.lock(key, ttl=1.5)
        # It may be suspended right after this report.
        last = time.monotonic()
        print("held", flush=True)
        while time.monotonic() - last < 0.75:
            last = time.monotonic()
            time.sleep(0.005)
        # This runs as soon as the program resumes.
        first = lock.is_valid
        loss = lock.lost.loss
        print(loss.reason if loss else loss, first)


globals()[step]()
if step not in ("forks", "stopped"):
    print(step)
