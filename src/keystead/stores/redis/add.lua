-- Writes whole keys, each with its deadline and only if there is none of its name.
--
-- KEYS  the keys
-- ARGV  for each key: its kind, its deadline or '', how many parts its value has, and these
--
-- Returns for each key 1: it was written; 0: there was one. A key whose writing fails is as absent as before; those
-- before it are written.

local WRITERS = { hash = 'HSET', set = 'SADD', zset = 'ZADD', list = 'RPUSH' }
local AT_ONCE = 5000 -- arguments of one command; even, for pairs

local function written(key, kind, first, last)
  if kind == 'string' then
    redis.call('SET', key, ARGV[first])
  elseif kind == 'stream' then
    local at = first
    while at <= last do
      local fields = tonumber(ARGV[at + 1])
      redis.call('XADD', key, ARGV[at], unpack(ARGV, at + 2, at + 1 + fields))
      at = at + 2 + fields
    end
    -- A log whose entries are all gone is still a key. There is no other way to make one.
    if first > last then redis.call('XADD', key, 'MAXLEN', '0', '0-1', 'empty', '') end
  else
    for at = first, last, AT_ONCE do
      redis.call(WRITERS[kind], key, unpack(ARGV, at, math.min(at + AT_ONCE - 1, last)))
    end
  end
end

local done = {}
local at = 1
for i, key in ipairs(KEYS) do
  local kind, deadline, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local first = at + 3
  at = first + count
  done[i] = 0
  if redis.call('EXISTS', key) == 0 then
    local good, problem = pcall(function()
      written(key, kind, first, at - 1)
      if deadline ~= '' then redis.call('PEXPIREAT', key, deadline) end
    end)
    if not good then
      redis.call('DEL', key)
      if type(problem) == 'table' then return problem end
      return redis.error_reply(tostring(problem))
    end
    done[i] = 1
  end
end
return done
