"""The driver for the Python package. conformance/README.md, "Drivers", describes its requests and answers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "src"))

import redis.asyncio

from palisade_client import Released, errors
from palisade_client.aio import Palisade

# Warnings of the library need not be shown: the driver's answers report the same.
logging.getLogger("palisade_client").setLevel(logging.ERROR)

CLASSES = {
    errors.NoQuorum: "unavailable",
    errors.Unavailable: "unavailable",
    errors.Misconfigured: "misconfigured",
    errors.BadArgument: "bad-argument",
    errors.ServerError: "server",
    errors.UnexpectedReply: "unexpected-reply",
    errors.Closed: "closed",
}


def failed(error: BaseException) -> dict[str, object]:
    match error:
        case errors.NotAcquired():
            return {"error": "not-acquired", "reason": error.reason, "holder": error.holder and error.holder.note}
        case errors.LockLost():
            return {"error": "lost", "reason": error.loss.reason}
        case errors.Fenced():
            return {"error": "fenced", "seen": error.seen}
        case errors.Guarded():
            return {"error": "guarded", "retry_after_ms": error.retry_after * 1000}
        case errors.PalisadeError():
            return {"error": CLASSES[type(error)], "message": str(error)}
        case asyncio.CancelledError():
            return {"error": "cancelled"}
    return {"error": "other", "message": repr(error)}


class Driver:
    def __init__(self) -> None:
        self.locks: Palisade | None = None
        self.adopter: Palisade | None = None
        self.data: redis.asyncio.Redis | None = None
        self.held = {}
        self.tasks = {}

    async def open(self, address, answer_within_ms=3000, **_):
        if self.locks:
            self.tasks["closing"] = asyncio.gather(self.locks.close(), self.adopter.close())
        self.held.clear()
        # Ten seconds, since the machine that runs the scenarios may be busy.
        self.locks, self.adopter = Palisade(address, answer_within=10), Palisade(address, answer_within=10)
        self.data = redis.asyncio.Redis.from_url(address, decode_responses=True)

    async def take(self, taking, key, ttl_ms, **request):
        options = {"ttl": ttl_ms / 1000}
        if "wait_ms" in request:
            options["wait"] = request["wait_ms"] / 1000
        if "note" in request:
            options["note"] = request["note"]
        if "extend" in request:
            options["auto_extend"] = request["extend"]
        lock = await taking(key, **options)
        self.held[request["as"]] = lock
        return {"token": lock.token, "number": getattr(lock, "number", 0)}

    async def lock(self, **request):
        return await self.take(self.locks.lock, **request)

    async def read(self, **request):
        return await self.take(self.locks.read_lock, **request)

    async def write(self, **request):
        return await self.take(self.locks.write_lock, **request)

    async def permit(self, limit, **request):
        return await self.take(lambda key, **options: self.locks.semaphore(key, limit).acquire(**options), **request)

    async def look(self, of, **_):
        lock = self.held[of]
        return {"valid_for_ms": lock.valid_for * 1000, "valid": lock.is_valid, "token": lock.token}

    async def extend(self, of, **_):
        await self.held[of].extend()

    async def reenter(self, of, **request):
        inner = self.held[request["as"]] = await self.held[of].reenter()
        return {"token": inner.token}

    async def release(self, of, **_):
        released = await self.held[of].release()
        return {"was_held": None if released is Released.UNKNOWN else bool(released)}

    async def adopt(self, of, **request):
        lock = self.held[of]
        # A lock that was already released cannot be handed over.
        owner, token = await lock.hand_over() if lock.is_valid else (lock.owner, lock.token)
        adopted = self.held[request["as"]] = await self.adopter.adopt(lock.key, owner, token)
        return {"token": adopted.token}

    async def downgrade(self, of, **_):
        await self.held[of].downgrade()

    async def leave(self, of, **_):
        await self.held[of].__aexit__(None, None, None)
        return {"left": True}

    async def gated(self, of, words, gate=None, held=False, **_):
        said = await self.held[of].fenced(self.data, gate, held=held).execute_command(*words)
        # redis-py returns True in place of OK.
        return {"said": "OK" if said is True else said}

    async def campaign(self, key, value, ttl_ms, **request):
        leadership = self.held[request["as"]] = await self.locks.election(key).campaign(value, ttl=ttl_ms / 1000)
        return {"term": leadership.term}

    async def leader(self, key, **_):
        leader = await self.locks.election(key).leader()
        return {"value": leader and leader.value.decode(), "term": leader and leader.term}

    async def all(self, keys, ttl_ms, **request):
        group = self.held[request["as"]] = self.locks.lock_all(keys, ttl=ttl_ms / 1000)
        await group.__aenter__()

    async def release_all(self, of, **_):
        await self.held[of].__aexit__(None, None, None)

    async def resign(self, of, **_):
        await self.held[of].resign()

    async def once(self, key, min_hold_ms, **_):
        async def work(_):
            pass

        return {"ran": (await self.locks.once(key, min_hold_ms / 1000).run(work)).ran}

    async def until_lost(self, of, **_):
        loss = await self.held[of].lost.wait()
        return {"reason": loss and loss.reason}

    async def cancel(self, of, **_):
        self.tasks[of].cancel()

    async def close(self, **_):
        await self.locks.close()

    async def answer(self, do, **request):
        try:
            work = getattr(self, do, None)
            answer = await work(**request) if work else {"error": "unsupported"}
        except BaseException as error:
            answer = failed(error)
        print(json.dumps({"id": request["id"], **(answer or {})}), flush=True)


async def main() -> None:
    driver = Driver()
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    while line := await requests.readline():
        request = json.loads(line)
        driver.tasks[request["id"]] = asyncio.create_task(driver.answer(**request))


asyncio.run(main())
