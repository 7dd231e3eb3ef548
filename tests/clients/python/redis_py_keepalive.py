"""Work under a lock that lasts as long as this process: the server renews its lease by itself."""

import os
import secrets
import sys
import time

import redis

# A connection of its own, not one of a pool.
holder = redis.Redis(port=int(os.environ.get("PORT", 6379)), single_connection_client=True)
owner = secrets.token_hex(16)  # New for each acquisition.
token = holder.execute_command("LOCK.ACQUIRE", "orders:import", owner, 2000, "KEEPALIVE", 3_600_000, "RETRY")
if token is None:
    sys.exit("somebody else has the lock")
print("token:", token, flush=True)
time.sleep(600)  # The work. It may keep the processor busy all the time.
holder.execute_command("LOCK.RELEASE", "orders:import", owner, "LEVEL", 1)
