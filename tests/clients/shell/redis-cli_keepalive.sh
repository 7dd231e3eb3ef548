#!/usr/bin/env bash
# Runs a command under a lock that lasts as long as the command does: redis-cli_keepalive.sh orders:import ./import.sh
set -euo pipefail

key=$1
shift
owner=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n') # New for each acquisition.

exec 3<>"/dev/tcp/127.0.0.1/${PORT:-6379}" # bash opens it by itself: redis-cli closes its connection when it ends.
printf 'LOCK.ACQUIRE %s %s 2000 KEEPALIVE 3600000\r\n' "$key" "$owner" >&3
IFS=$'\r' read -r answer <&3 # :TOKEN, $-1 for Null, or -ERROR
[ "${answer::1}" = : ] || { echo "No lock: $answer" >&2; exit 75; } # As of a command that may be tried again.

echo "token: ${answer#:}"
TOKEN=${answer#:} exec "$@" # Takes the place of this process. The connection stays open, as descriptor 3.
