#!/usr/bin/env bash
# A lock with redis-cli: take it, be refused, wait, write under it, give it back, share it.
set -euo pipefail

KEY=orders:42 DATA={orders:42}:state # One hash slot, for the script on a cluster.

# To a file or a pipe redis-cli prints values as they are, and Null as an empty line.
run() { redis-cli -p "${PORT:-6379}" "$@"; }
new_owner() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; } # New for each acquisition.

# Writes only if the token is that of the lock's current grant.
guarded_set() { # token value
  run EVAL "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
    return redis.error_reply('FENCED by a newer grant')" 2 "$KEY" "$DATA" "$@"
}

# Runs a command with TOKEN set, under the lock, held for at most ttl ms, after waiting for at most wait ms.
with_lock() { # key ttl wait command...
  local key=$1 ttl=$2 wait=$3 owner grant status=0
  shift 3
  owner=$(new_owner)
  # With -e an error goes to stderr and ends redis-cli with a status that is not 0.
  if grant=$(run -e LOCK.ACQUIRE "$key" "$owner" "$ttl" WAIT "$wait" RETRY) && [ -n "$grant" ]; then
    TOKEN=${grant%%$'\n'*} "$@" || status=$?
  else
    status=75 # As of a command that may be tried again.
  fi
  # LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
  run LOCK.RELEASE "$key" "$owner" LEVEL 1 >/dev/null
  return "$status"
}

me=$(new_owner) you=$(new_owner)

token=$(run LOCK.ACQUIRE "$KEY" "$me" 10000)
echo "acquire: $token"
echo "another owner: $(run LOCK.ACQUIRE "$KEY" "$you" 10000)"
read -r code text < <(run LOCK.ACQUIRE "$KEY" "$me" 10000)
echo "again: $code"
echo "again with RETRY: $(run LOCK.ACQUIRE "$KEY" "$me" 10000 RETRY)"
echo "reenter: $(run LOCK.REENTER "$KEY" "$me")"
echo "extend: $(run LOCK.EXTEND "$KEY" "$me" 20000)"

# The server passes the lock on when it is released: no polling.
(sleep 0.1 && echo "release: $(run LOCK.RELEASE "$KEY" "$me" LEVEL 1)") &
mapfile -t grant < <(run LOCK.ACQUIRE "$KEY" "$you" 10000 WAIT 30000)
wait
echo "wait: ${grant[*]}"

echo "write with the current token: $(guarded_set "${grant[0]}" paid)"
read -r code text < <(guarded_set "$token" open)
echo "write with the old token: $code"
run LOCK.RELEASE "$KEY" "$you" LEVEL 1 >/dev/null

# Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
echo "read: $(run LOCK.ACQUIRE "$KEY" "$me" 10000 SHARED)"
echo "read as well: $(run LOCK.ACQUIRE "$KEY" "$you" 10000 SHARED)"
echo "write meanwhile: $(run LOCK.ACQUIRE "$KEY" "$(new_owner)" 10000)"
for reader in "$me" "$you"; do run LOCK.RELEASE "$KEY" "$reader" >/dev/null; done
mapfile -t permit < <(run LOCK.ACQUIRE "$KEY" "$me" 10000 LIMIT 2)
echo "permit: ${permit[*]}"
run LOCK.RELEASE "$KEY" "$me" >/dev/null

# A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
run LOCK.GUARD ARM 1500 >/dev/null
read -r code left_ms text < <(run LOCK.ACQUIRE "$KEY" "$me" 10000)
echo "guarded: $code, try again in $left_ms ms"
sleep "$((left_ms / 1000)).$(printf %03d $((left_ms % 1000)))"

with_lock "$KEY" 10000 30000 sh -c 'echo "lock: $TOKEN"; echo "$TOKEN" >"$0"' "${kept:=$(mktemp)}"
echo "after it: $(run LOCK.CHECK "$KEY" "$(cat "$kept")")"
rm "$kept"
