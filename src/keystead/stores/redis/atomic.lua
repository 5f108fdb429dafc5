-- Runs steps as one: all of them take effect, or none does.
--
-- KEYS     every key that a step names
-- ARGV[1]  the last step that may stop the others, counted from 1
-- ARGV[2…] for each step: flags, the kind it works on, how many keys it has, how many arguments, the arguments
--          (the command first, its keys next)
-- flags    "w" it writes; "!" its reply must not be nil or 0; "=" or "~" a guard: its reply must be the last
--          argument ("=") or nil ("~"); "0" a guard: its reply must be 0; "<" a guard: its reply must be at most the
--          last two arguments, the limit for whole numbers of 64 bits and the limit for all others; "d" a guard: its
--          reply must have the digest that is the last argument; "k" it may have written although that is its reply;
--          "#" it adds to a number; "p" it publishes; "t" the time of this server belongs into it: after its arguments
--          come pairs of a place among them and the ms to be added, and how many
--
-- Returns { the step that stopped or failed, or 0; the replies up to that step }.

-- One time for all steps, TIME itself included.
local clock
local function time()
  clock = clock or redis.call('TIME')
  return clock
end

local moments = {}
local function time_plus(ms)
  if not moments[ms] then
    local moment = time()[1] * 1000 + math.floor(time()[2] / 1000) + tonumber(ms)
    moments[ms] = string.format(moment == math.floor(moment) and '%.0f' or '%.17g', moment)
  end
  return moments[ms]
end

local function fill_in_times(args)
  for _ = 1, tonumber(table.remove(args)) do
    local ms, place = table.remove(args), tonumber(table.remove(args))
    args[place] = time_plus(ms)
  end
end

local last = tonumber(ARGV[1])
local steps = {}
local at = 2
while at <= #ARGV do
  local count = tonumber(ARGV[at + 3])
  local step = {
    flags = ARGV[at], kind = ARGV[at + 1], keys = tonumber(ARGV[at + 2]),
    args = { unpack(ARGV, at + 4, at + 3 + count) },
  }
  if string.find(step.flags, 't', 1, true) then fill_in_times(step.args) end
  steps[#steps + 1] = step
  at = at + 4 + count
end

local function has(step, flag)
  return string.find(step.flags, flag, 1, true) ~= nil
end

-- A step fails after others have written only on a key of another kind, or on a number that is none or grows too
-- large. Where what is there now excludes all that, nothing needs to be kept for undoing.
local function is_small_integer(text)
  return not text or text == '0' or (#text <= 12 and string.find(text, '^%-?[1-9]%d*$') ~= nil)
end

local function number_in(step)
  if step.kind == 'hash' then
    return redis.call('HGET', step.args[2], step.args[3])
  end
  return redis.call('GET', step.args[2])
end

local kinds = {} -- of keys that were looked at here, or by a step that fails before anything is written
local function may_fail(step)
  if step.kind ~= '' then
    for k = 2, step.keys + 1 do
      local key = step.args[k]
      if kinds[key] ~= step.kind then
        local held = redis.call('TYPE', key)['ok']
        if held ~= 'none' and held ~= step.kind then return true end
        kinds[key] = step.kind
      end
    end
  end
  return has(step, '#') and not (is_small_integer(step.args[#step.args]) and is_small_integer(number_in(step)))
end

-- Numbers of Lua's have no room for 64 bits, so whole numbers are compared as they are written.
local function is_whole_at_most(a, b)
  local negative = string.sub(a, 1, 1) == '-'
  if negative ~= (string.sub(b, 1, 1) == '-') then return negative end
  if negative then a, b = string.sub(b, 2), string.sub(a, 2) end
  if #a ~= #b then return #a < #b end
  return a <= b
end

local function is_whole(text)
  return text == '0' or (string.find(text, '^%-?[1-9]%d*$') ~= nil
    and is_whole_at_most('-9223372036854775808', text) and is_whole_at_most(text, '9223372036854775807'))
end

-- As strict as Redis is with scores: `tonumber` alone takes spaces, other bases and nan. Nil: it is no number.
local function number_of(text)
  local sign, rest = string.match(string.lower(text), '^([+-]?)(.*)$')
  local size
  if rest == 'inf' or rest == 'infinity' then
    size = math.huge
  else
    local digits, exponent = string.match(rest, '^([%d.]+)(.*)$')
    if not digits or not string.find(digits, '%d') or string.find(digits, '%.%d*%.') then return nil end
    if exponent ~= '' and not string.find(exponent, '^e[+-]?%d+$') then return nil end
    size = tonumber(digits .. exponent)
    if size == math.huge or (size == 0 and string.find(digits, '[1-9]')) then return nil end
  end
  return sign == '-' and -size or size
end

local function within(step, reply, whole, limit)
  if not reply then reply = 0 end
  -- A score is a float even where it is written as a whole number: Valkey writes 2^62 + 2^11 as 4611686018427390000.
  if type(reply) == 'string' and step.kind ~= 'zset' and is_whole(reply) then
    return is_whole_at_most(reply, whole) and 1 or 0
  end
  local number = reply
  if type(reply) == 'string' then
    number = step.kind == 'zset' and tonumber(reply) or number_of(reply)
  end
  if not number then return { err = 'ERR the reply is not a number to compare' } end
  return number <= tonumber(limit) and 1 or 0
end

-- A reply as text, each part with its length. Numbers of Lua's would be rounded to 14 digits by `tostring`.
local function text_of(part)
  if type(part) == 'table' then
    local parts = {}
    for i = 1, #part do parts[i] = text_of(part[i]) end
    return '*' .. #parts .. ':' .. table.concat(parts)
  end
  if not part then return '-' end
  if type(part) == 'number' then part = string.format('%.0f', part) end
  return '$' .. #part .. ':' .. part
end

-- The members of a set and the fields of a hash stand in no order, so they are sorted by their digests: other strings
-- are compared by the locale of the server.
local function digest_of(step, reply)
  local name = step.args[1]
  if name == 'SMEMBERS' or name == 'HGETALL' then
    local width, sums = name == 'HGETALL' and 2 or 1, {}
    for i = 1, #reply, width do
      local text = text_of(reply[i])
      if width == 2 then text = text .. text_of(reply[i + 1]) end
      sums[#sums + 1] = redis.sha1hex(text)
    end
    table.sort(sums)
    return redis.sha1hex(table.concat(sums))
  end
  for i = 5, name == 'ZRANGE' and #step.args or 0 do
    if string.upper(step.args[i]) == 'WITHSCORES' then
      for k = 2, #reply, 2 do reply[k] = string.format('%.17g', number_of(reply[k]) + 0) end
    end
  end
  return redis.sha1hex(text_of(reply))
end

-- Up to the first step that writes, whatever fails leaves nothing to undo.
local first = #steps + 1
for i, step in ipairs(steps) do
  if i > first then
    if last == #steps then break end
    if may_fail(step) then last = #steps end
  else
    if string.byte(step.flags) == 119 then first = i end -- "w"
    if step.kind ~= '' then
      for k = 2, step.keys + 1 do kinds[step.args[k]] = kinds[step.args[k]] or step.kind end
    end
  end
end

local function not_allowed(step)
  return { err = 'NOPERM this user may not run ' .. step.args[1] .. ' here' }
end

-- A user who may not do all of it does none of it. Messages go last, whatever their place.
if redis.acl_check_cmd then
  for i, step in ipairs(steps) do
    if i > first or has(step, 'p') then
      local count = #step.args - ((has(step, '=') or has(step, 'd')) and 1 or has(step, '<') and 2 or 0)
      if not redis.acl_check_cmd(unpack(step.args, 1, count)) then
        local refused = {}
        for k = 1, i do refused[k] = false end
        refused[i] = not_allowed(step)
        return { i, refused }
      end
    end
  end
end

local kept = {}
local checked = false

local function keep(key)
  if kept[key] ~= nil then return end
  if not checked then
    -- Undoing needs RESTORE. A user who may not call it is refused here, before anything is written.
    local answer = redis.pcall('RESTORE', key, 0, '')
    if string.find(answer.err, 'NOPERM', 1, true) then error(answer) end
    checked = true
  end
  local copy = redis.call('DUMP', key)
  kept[key] = copy and { copy, redis.call('PEXPIRETIME', key) } or false
end

local function undo()
  for key, copy in pairs(kept) do
    redis.call('DEL', key)
    if copy then
      redis.call('RESTORE', key, math.max(copy[2], 0), copy[1], 'ABSTTL')
    end
  end
end

local pcall_ = redis.pcall
local replies = {}
local messages = {}
for i, step in ipairs(steps) do
  local reply
  local mark = string.sub(step.flags, 1, 1) -- of a guard and of a message, what they are
  if mark == '' then
    if step.args[1] == 'TIME' then reply = time() else reply = pcall_(unpack(step.args)) end
  elseif mark == 'p' then
    messages[#messages + 1] = i -- a message cannot be taken back, so it goes last
    reply = 0
  elseif mark == '=' then
    local expected = table.remove(step.args)
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' then reply = reply == expected and 1 or 0 end
  elseif mark == '~' then
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' then reply = (not reply) and 1 or 0 end
  elseif mark == '0' then
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' then reply = reply == 0 and 1 or 0 end
  elseif mark == '<' then
    local limit, whole = table.remove(step.args), table.remove(step.args)
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' then reply = within(step, reply, whole, limit) end
  elseif mark == 'd' then
    local expected = table.remove(step.args)
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' or not reply.err then reply = digest_of(step, reply) == expected and 1 or 0 end
  else
    if mark == 'w' and (i < last or has(step, 'k')) then
      for k = 2, step.keys + 1 do keep(step.args[k]) end
    end
    reply = pcall_(unpack(step.args))
    if has(step, '#') and type(reply) == 'number' and math.abs(reply) >= 2 ^ 53 then
      reply = number_in(step) -- a number of Lua's has no room for it: as text
    end
  end
  local failed = type(reply) == 'table' and reply.err
  if failed and (string.find(failed, 'ACL failure', 1, true) or string.sub(failed, 1, 6) == 'NOPERM') then
    reply = not_allowed(step)
  end
  replies[i] = reply
  local stopped = mark ~= '' and (reply == false or reply == 0)
    and (has(step, '!') or (reply == 0 and string.find(mark, '[=~0<d]') ~= nil))
  if failed or stopped then
    undo()
    return { i, replies }
  end
end
for _, i in ipairs(messages) do
  replies[i] = redis.call(unpack(steps[i].args))
end
return { 0, replies }
