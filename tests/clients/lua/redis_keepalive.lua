-- Work under a lock that lasts as long as this process: the server renews its lease by itself.

local redis = require 'redis'
redis.commands.lock_acquire = redis.command('LOCK.ACQUIRE')
redis.commands.lock_release = redis.command('LOCK.RELEASE')

local holder = redis.connect('127.0.0.1', os.getenv('PORT') or 6379)
local random = assert(io.open('/dev/urandom', 'rb'))
local owner = random:read(16):gsub('.', function(byte) return ('%02x'):format(byte:byte()) end)
random:close()

local token = holder:lock_acquire('orders:import', owner, 2000, 'KEEPALIVE', 3600000)
if not token then error('somebody else has the lock', 0) end
print('token: ' .. string.format('%.0f', token))
io.stdout:flush()
require('socket').sleep(600) -- The work. `holder` is used after it, so it is not collected.
holder:lock_release('orders:import', owner, 'LEVEL', 1)
