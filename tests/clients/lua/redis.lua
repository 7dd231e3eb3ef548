-- A lock with lua-redis: take it, be refused, wait, write under it, give it back, share it.

local redis = require 'redis'

local KEY, DATA = 'orders:42', '{orders:42}:state' -- One hash slot, for the script on a cluster.

-- Writes only if the token is that of the lock's current grant.
local GUARDED_SET = [[
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')]]

for _, name in ipairs { 'acquire', 'release', 'extend', 'reenter', 'check', 'guard' } do
  redis.commands['lock_' .. name] = redis.command('LOCK.' .. name:upper())
end

local function connect() return redis.connect('127.0.0.1', os.getenv('PORT') or 6379) end

-- All digits of a token: tostring and .. keep 14 of the 16, and so does this client when it sends a number.
local function digits(token) return string.format('%.0f', token) end

-- New for each acquisition.
local function new_owner()
  local random = assert(io.open('/dev/urandom', 'rb'))
  local bytes = random:read(16)
  random:close()
  return (bytes:gsub('.', function(byte) return ('%02x'):format(byte:byte()) end))
end

-- The first two words of the error. The first is stable.
local function refusal(client, command, ...)
  local done, answer = pcall(client[command], client, ...)
  if done then return answer end
  return answer:match('redis error: (%S+) (%S+)')
end

-- Calls `work` with the fencing token of the lock, held for at most ttl ms, after waiting for at most wait ms.
local function with_lock(client, key, ttl, wait, work)
  local owner = new_owner()
  local done, problem = pcall(function()
    -- A command that waits holds up all others on its connection: waits get a connection of their own.
    local grant = connect():lock_acquire(key, owner, ttl, 'WAIT', wait, 'RETRY')
    if not grant then error(key .. ' was not free within ' .. wait .. ' ms', 0) end
    work(digits(grant[1]))
  end)
  -- LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
  client:lock_release(key, owner, 'LEVEL', 1)
  if not done then error(problem, 0) end
end

local client = connect()
local me, you = new_owner(), new_owner()

local token = digits(client:lock_acquire(KEY, me, 10000))
print('acquire: ' .. token)
print('another owner: ' .. tostring(client:lock_acquire(KEY, you, 10000)))
print('again: ' .. refusal(client, 'lock_acquire', KEY, me, 10000))
print('again with RETRY: ' .. digits(client:lock_acquire(KEY, me, 10000, 'RETRY')))
print('reenter: ' .. client:lock_reenter(KEY, me))
print('extend: ' .. digits(client:lock_extend(KEY, me, 20000)))
print('release: ' .. client:lock_release(KEY, me, 'LEVEL', 1))

-- The server passes the lock on when it is free, here because a lease ends: no polling.
client:lock_acquire(KEY, me, 100)
local grant = connect():lock_acquire(KEY, you, 10000, 'WAIT', 30000)
print(('wait: { %.0f, %d }'):format(grant[1], grant[2]))

local function guarded_set(with, value) return refusal(client, 'eval', GUARDED_SET, 2, KEY, DATA, with, value) end
print('write with the current token: ' .. tostring(guarded_set(digits(grant[1]), 'paid')))
print('write with the old token: ' .. guarded_set(token, 'open'))
client:lock_release(KEY, you, 'LEVEL', 1)

-- Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
print('read: ' .. digits(client:lock_acquire(KEY, me, 10000, 'SHARED')))
print('read as well: ' .. digits(client:lock_acquire(KEY, you, 10000, 'SHARED')))
print('write meanwhile: ' .. tostring(client:lock_acquire(KEY, new_owner(), 10000)))
for _, reader in ipairs { me, you } do client:lock_release(KEY, reader) end
print(('permit: { %.0f, %d, %d }'):format(unpack(client:lock_acquire(KEY, me, 10000, 'LIMIT', 2))))
client:lock_release(KEY, me)

-- A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
client:lock_guard('ARM', 1500)
local code, left_ms = refusal(client, 'lock_acquire', KEY, me, 10000)
print(('guarded: %s, try again in %s ms'):format(code, left_ms))
require('socket').sleep(left_ms / 1000)

local last
with_lock(client, KEY, 10000, 30000, function(token)
  last = token
  print('lock: ' .. token)
end)
print('after it: ' .. tostring(client:lock_check(KEY, last)))
client:quit()
