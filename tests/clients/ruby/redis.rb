# A lock with redis-rb: take it, be refused, wait, write under it, give it back, share it.

require "redis"
require "securerandom"

KEY, DATA = "orders:42", "{orders:42}:state" # One hash slot, for the script on a cluster.

# Writes only if the token is that of the lock's current grant.
GUARDED_SET = <<~LUA
  if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
  return redis.error_reply('FENCED by a newer grant')
LUA

PORT = ENV.fetch("PORT", 6379).to_i

# New for each acquisition.
def new_owner = SecureRandom.hex(16)

# The words of the error. The first is stable.
def refusal
  [yield]
rescue Redis::CommandError => error
  error.message.split
end

# Yields the fencing token of the lock, held for at most ttl ms, after waiting for at most wait ms.
def with_lock(redis, key, ttl: 10_000, wait: 30_000)
  owner = new_owner
  # A client sends one command at a time: a wait gets a client of its own. Its read timeout, in seconds, is longer.
  waiting = Redis.new(port: PORT, read_timeout: wait / 1000.0 + 5)
  # RETRY: the client may send this twice, when a connection breaks.
  token, = waiting.call("LOCK.ACQUIRE", key, owner, ttl, "WAIT", wait, "RETRY")
  raise "#{key} was not free within #{wait} ms" unless token
  yield token
ensure
  waiting&.close
  # LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
  redis.call("LOCK.RELEASE", key, owner, "LEVEL", 1)
end

def say(what, answer) = puts("#{what}: #{answer.inspect}")

redis = Redis.new(port: PORT)
me, you = new_owner, new_owner

token = redis.call("LOCK.ACQUIRE", KEY, me, 10_000)
say "acquire", token
say "another owner", redis.call("LOCK.ACQUIRE", KEY, you, 10_000)
say "again", refusal { redis.call("LOCK.ACQUIRE", KEY, me, 10_000) }.first
say "again with RETRY", redis.call("LOCK.ACQUIRE", KEY, me, 10_000, "RETRY")
say "reenter", redis.call("LOCK.REENTER", KEY, me)
say "extend", redis.call("LOCK.EXTEND", KEY, me, 20_000)

# The server passes the lock on when it is released: no polling.
waits = Thread.new do
  Redis.new(port: PORT, read_timeout: 35).call("LOCK.ACQUIRE", KEY, you, 10_000, "WAIT", 30_000)
end
sleep 0.1
say "release", redis.call("LOCK.RELEASE", KEY, me, "LEVEL", 1)
grant = waits.value
say "wait", grant

say "write with the current token", redis.eval(GUARDED_SET, keys: [KEY, DATA], argv: [grant.first, "paid"])
say "write with the old token", refusal { redis.eval(GUARDED_SET, keys: [KEY, DATA], argv: [token, "open"]) }.first
redis.call("LOCK.RELEASE", KEY, you, "LEVEL", 1)

# Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
say "read", redis.call("LOCK.ACQUIRE", KEY, me, 10_000, "SHARED")
say "read as well", redis.call("LOCK.ACQUIRE", KEY, you, 10_000, "SHARED")
say "write meanwhile", redis.call("LOCK.ACQUIRE", KEY, new_owner, 10_000)
[me, you].each { |reader| redis.call("LOCK.RELEASE", KEY, reader) }
say "permit", redis.call("LOCK.ACQUIRE", KEY, me, 10_000, "LIMIT", 2)
redis.call("LOCK.RELEASE", KEY, me)

# A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
redis.call("LOCK.GUARD", "ARM", 1500)
code, left_ms = refusal { redis.call("LOCK.ACQUIRE", KEY, me, 10_000) }
puts "guarded: #{code}, try again in #{left_ms} ms"
sleep left_ms.to_i / 1000.0

last = with_lock(redis, KEY) do |token|
  say "lock", token
  token
end
say "after it", redis.call("LOCK.CHECK", KEY, last)
redis.close
