"""Work under a lock that lasts as long as this process: the server renews its lease by itself."""

import asyncio
import os
import secrets
import sys

import redis.asyncio as redis


async def main():
    # A connection of its own, not one of a pool.
    async with redis.Redis(port=int(os.environ.get("PORT", 6379)), single_connection_client=True) as holder:
        owner = secrets.token_hex(16)  # New for each acquisition.
        token = await holder.execute_command("LOCK.ACQUIRE", "orders:import", owner, 2000, "KEEPALIVE", 3_600_000, "RETRY")
        if token is None:
            sys.exit("somebody else has the lock")
        print("token:", token, flush=True)
        await asyncio.sleep(600)  # The work. It may keep the event loop busy all the time.
        await holder.execute_command("LOCK.RELEASE", "orders:import", owner, "LEVEL", 1)


asyncio.run(main())
