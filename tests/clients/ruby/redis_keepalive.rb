# Work under a lock that lasts as long as this process: the server renews its lease by itself.

require "redis"
require "securerandom"

# A connection of its own. When it breaks, the next command says so: no new one that hides it.
holder = Redis.new(port: ENV.fetch("PORT", 6379).to_i, reconnect_attempts: 0)
owner = SecureRandom.hex(16) # New for each acquisition.
token = holder.call("LOCK.ACQUIRE", "orders:import", owner, 2000, "KEEPALIVE", 3_600_000)
abort "somebody else has the lock" unless token
$stdout.sync = true
puts "token: #{token}"
sleep 600 # The work. It may keep every thread busy all the time.
holder.call("LOCK.RELEASE", "orders:import", owner, "LEVEL", 1)
