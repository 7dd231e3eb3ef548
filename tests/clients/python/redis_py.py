"""A lock with redis-py: take it, be refused, wait, write under it, give it back, share it."""

import os
import secrets
import threading
import time
from contextlib import contextmanager

import redis

KEY, DATA = "orders:42", "{orders:42}:state"  # One hash slot, for the script on a cluster.

# A blocking command may take longer than socket_timeout (5 s by default): waits get a client of their own.
port = int(os.environ.get("PORT", 6379))
client = redis.Redis(port=port, decode_responses=True)
waiting = redis.Redis(port=port, socket_timeout=60)

# Writes only if the token is that of the lock's current grant.
guarded_set = client.register_script("""
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')
""")


def refusal(call, *arguments):
    """The first word of the error, which is stable, and the text after it."""
    try:
        return call(*arguments), ""
    except redis.ResponseError as error:
        code, _, text = str(error).partition(" ")
        return code, text


@contextmanager
def lock(key, ttl=10_000, wait=30_000):
    """Holds the lock for at most ttl ms, after waiting for at most wait ms; gives its fencing token."""
    owner = secrets.token_hex(16)  # New for each acquisition.
    try:
        # RETRY: the client may send this twice, when a connection breaks.
        grant = waiting.execute_command("LOCK.ACQUIRE", key, owner, ttl, "WAIT", wait, "RETRY")
        if grant is None:
            raise TimeoutError(f"{key} was not free within {wait} ms")
        yield grant[0]
    finally:
        # LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
        client.execute_command("LOCK.RELEASE", key, owner, "LEVEL", 1)


run = client.execute_command
me, you = secrets.token_hex(16), secrets.token_hex(16)
# An agent in front of several nodes has no data and no guard of its own.
is_agent = "majority" in run("LOCK.NODE")

token = run("LOCK.ACQUIRE", KEY, me, 10_000)
print("acquire:", token)
print("another owner:", run("LOCK.ACQUIRE", KEY, you, 10_000))
print("again:", refusal(run, "LOCK.ACQUIRE", KEY, me, 10_000)[0])
print("again with RETRY:", run("LOCK.ACQUIRE", KEY, me, 10_000, "RETRY"))
print("reenter:", run("LOCK.REENTER", KEY, me))
print("extend:", run("LOCK.EXTEND", KEY, me, 20_000))

# The server passes the lock on when it is released: no polling.
release = threading.Timer(0.1, lambda: print("release:", run("LOCK.RELEASE", KEY, me, "LEVEL", 1)))
release.start()
grant = waiting.execute_command("LOCK.ACQUIRE", KEY, you, 10_000, "WAIT", 30_000)
release.join()
print("wait:", grant)

if not is_agent:
    print("write with the current token:", guarded_set([KEY, DATA], [grant[0], "paid"]))
    print("write with the old token:", refusal(guarded_set, [KEY, DATA], [token, "open"])[0])
run("LOCK.RELEASE", KEY, you, "LEVEL", 1)

# Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
print("read:", run("LOCK.ACQUIRE", KEY, me, 10_000, "SHARED"))
print("read as well:", run("LOCK.ACQUIRE", KEY, you, 10_000, "SHARED"))
print("write meanwhile:", run("LOCK.ACQUIRE", KEY, secrets.token_hex(16), 10_000))
for reader in me, you:
    run("LOCK.RELEASE", KEY, reader)
print("permit:", run("LOCK.ACQUIRE", KEY, me, 10_000, "LIMIT", 2))
run("LOCK.RELEASE", KEY, me)

# A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
if not is_agent:
    run("LOCK.GUARD", "ARM", 1500)
    code, text = refusal(run, "LOCK.ACQUIRE", KEY, me, 10_000)
    left_ms = int(text.split()[0])
    print(f"guarded: {code}, try again in {left_ms} ms")
    time.sleep(left_ms / 1000)

with lock(KEY) as token:
    print("lock:", token)
print("after it:", run("LOCK.CHECK", KEY, token))
