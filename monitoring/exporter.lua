#!lua flags=no-writes,allow-stale
-- What redis_exporter asks a lock server, beside what it knows by itself: the numbers of INFO lock.
-- Start it with: redis_exporter -redis.addr redis://127.0.0.1:6379 -script exporter.lua
-- They become redis_script_values{key="lock_held"} and so on.
local values = {}
for line in string.gmatch(redis.call('INFO', 'lock'), '[^\r\n]+') do
  local name, value = string.match(line, '^(lock_[%l%d_]+):(%d+)$')
  if name then
    values[#values + 1] = name
    values[#values + 1] = value
  end
end
return values
