-- Reads whole keys as one step: the kind, the deadline and the value of each.
--
-- KEYS     the keys
-- ARGV[1]  how many entries may be read; ARGV[2]  how many bytes of strings
--
-- Returns for each key { kind, deadline, value }; 0: there is none; 1: it is larger than that, or of a kind that has no
-- commands here. Stops before the first key for which there is no room left: whoever asked goes on with that one.

local READS = {
  string = { 'STRLEN', 'GET' },
  hash = { 'HLEN', 'HGETALL' },
  set = { 'SCARD', 'SMEMBERS' },
  zset = { 'ZCARD', 'ZRANGE', '0', '-1', 'WITHSCORES' },
  list = { 'LLEN', 'LRANGE', '0', '-1' },
  stream = { 'XLEN', 'XRANGE', '-', '+' },
}
local limits = { entries = tonumber(ARGV[1]), bytes = tonumber(ARGV[2]) }
local used = { entries = 0, bytes = 0 }

local call = redis.call
local found = {}
for i, key in ipairs(KEYS) do
  local kind = call('TYPE', key)['ok']
  local read = READS[kind]
  if not read then
    found[i] = kind == 'none' and 0 or 1
  else
    local unit = kind == 'string' and 'bytes' or 'entries'
    local size = call(read[1], key)
    if size > limits[unit] then
      found[i] = 1
    elseif used[unit] + size > limits[unit] then
      break
    else
      used[unit] = used[unit] + size
      found[i] = { kind, call('PEXPIRETIME', key), call(read[2], key, unpack(read, 3)) }
    end
  end
end
return found
