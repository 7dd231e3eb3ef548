#!lua flags=no-writes,allow-stale
-- What redis_exporter asks a lock server, beside what it knows by itself: the numbers of INFO lock.
-- Start it with: redis_exporter -redis.addr redis://127.0.0.1:6379 -script exporter.lua
-- They become redis_script_values{key="lock_held"} and so on; those of a prefix of lock.metrics-prefixes
-- redis_script_values{key="lock_prefix_grants:orders:"}, those of all other keys {key="lock_other_grants"}.
local values = {}
local function tell(name, value)
  values[#values + 1] = name
  values[#values + 1] = value
end
for line in string.gmatch(redis.call('INFO', 'lock'), '[^\r\n]+') do
  local name, value = string.match(line, '^(lock_[%l%d_]+):(%d+)$')
  if name then
    tell(name, value)
  end
  local prefix, figures = string.match(line, '^lock_prefix_%d+:prefix=([^,]*),(.*)$')
  local other = string.match(line, '^lock_prefix_other:(.*)$')
  for figure, number in string.gmatch(figures or other or '', '([%l%d_]+)=(%d+)') do
    tell(prefix and 'lock_prefix_' .. figure .. ':' .. prefix or 'lock_other_' .. figure, number)
  end
end
return values
