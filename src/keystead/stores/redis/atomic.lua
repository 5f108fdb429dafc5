-- Runs steps as one: all of them take effect, or none does.
--
-- KEYS     every key that a step names
-- ARGV[1]  the last step that may stop the others, counted from 1
-- ARGV[2…] for each step: flags, the kind it works on, how many keys it has, how many arguments, the arguments
--          (the command first, its keys next)
-- flags    "w" it writes; "!" its reply must not be nil or 0; "=" or "~" a guard: its reply must be the last
--          argument ("=") or nil ("~"); "0" a guard: its reply must be 0; "<" a guard: its reply must be at most the
--          last two arguments, the limit for whole numbers of 64 bits and the limit for all others; ">" the opposite;
--          "d" a guard: its reply must have the digest that is the last argument; "k" it may have written although that is its reply;
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
      local count = #step.args - ((has(step, '=') or has(step, 'd')) and 1 or (has(step, '<') or has(step, '>')) and 2 or 0)
      if not redis.acl_check_cmd(unpack(step.args, 1, count)) then
        local refused = {}
        for k = 1, i do refused[k] = false end
        refused[i] = not_allowed(step)
        return { i, refused }
      end
    end
  end
end

local replies = {}
local trims = {}
local undoing = {} -- what undoes the steps that have written, the latest first

-- Most steps never have to be undone, and to make all these functions takes a good part of the time of a call.
local keep
local function be_ready_to_undo()
  local kept = {}
  local checked = false

  local function keep_whole(key)
    if kept[key] then return end
    if not checked then
      -- Undoing needs RESTORE. A user who may not call it is refused here, before anything is written.
      local answer = redis.pcall('RESTORE', key, 0, '')
      if string.find(answer.err, 'NOPERM', 1, true) then error(answer) end
      checked = true
    end
    kept[key] = true
    local copy = redis.call('DUMP', key)
    local deadline = copy and redis.call('PEXPIRETIME', key)
    undoing[#undoing + 1] = function()
      redis.call('DEL', key)
      if copy then redis.call('RESTORE', key, math.max(deadline, 0), copy, 'ABSTTL') end
    end
  end

  -- A large key is not copied to undo what a step does to some of its members: these are noted alone. Each function
  -- takes the step's arguments and returns what undoes it; nil: it takes a copy of the whole.
  local SMALL = 64 -- members; to copy so few takes no longer than to look at some of them

  local function may(...)
    return redis.acl_check_cmd ~= nil and redis.acl_check_cmd(...)
  end

  -- Where the last member goes, so does the key, and with it its deadline.
  local function restoring_deadline(key, undo_members)
    local deadline = redis.call('PEXPIRETIME', key)
    if deadline > 0 and not may('PEXPIREAT', key, '1') then return nil end
    return function()
      undo_members()
      if deadline > 0 then redis.call('PEXPIREAT', key, deadline) end
    end
  end

  local function scored(args, first, width)
    local key, members = args[2], {}
    for i = first, #args, width do members[#members + 1] = args[i] end
    if not (may('ZADD', key, '1', '') and may('ZREM', key, '')) then return nil end
    local scores = redis.call('ZMSCORE', key, unpack(members))
    return restoring_deadline(key, function()
      for i, member in ipairs(members) do
        if scores[i] then redis.call('ZADD', key, scores[i], member) else redis.call('ZREM', key, member) end
      end
    end)
  end

  local function belonging(args)
    local key, members = args[2], { unpack(args, 3) }
    if not (may('SADD', key, '') and may('SREM', key, '')) then return nil end
    local were = redis.call('SMISMEMBER', key, unpack(members))
    return restoring_deadline(key, function()
      for i, member in ipairs(members) do redis.call(were[i] == 1 and 'SADD' or 'SREM', key, member) end
    end)
  end

  local function named(args, width)
    local key, names = args[2], {}
    for i = 3, #args, width do names[#names + 1] = args[i] end
    if not (may('HSET', key, '', '') and may('HDEL', key, '')) then return nil end
    local values = redis.call('HMGET', key, unpack(names))
    return restoring_deadline(key, function()
      for i, name in ipairs(names) do
        if values[i] then redis.call('HSET', key, name, values[i]) else redis.call('HDEL', key, name) end
      end
    end)
  end

  local function pushed(args, pop)
    local key, count = args[2], #args - 2
    if not may(pop, key, '1') then return nil end
    return function() redis.call(pop, key, count) end
  end

  -- What a stream is trimmed of cannot be put back, so that waits until nothing can stop the others: the reply of XADD
  -- is the same. That nobody looks at the stream meanwhile is known. Of an entry that was taken out again the stream
  -- keeps the number, so only one whose number the server chose is: the next one has a higher number either way.
  local function logged(args, i)
    local key, at = args[2], 3
    for k, other in ipairs(steps) do
      for place = 2, other.keys + 1 do
        if k ~= i and other.args[place] == key then return nil end
      end
    end
    if not (may('XDEL', key, '1-1') and may('XTRIM', key, 'MAXLEN', '1')) then return nil end
    if string.upper(args[3]) == 'MAXLEN' then at = (args[4] == '=' or args[4] == '~') and 6 or 5 end
    if args[at] ~= '*' then return nil end
    if at > 3 then
      trims[#trims + 1] = { 'XTRIM', key, unpack(args, 3, at - 1) }
      for _ = 4, at do table.remove(args, 3) end
    end
    return function() redis.call('XDEL', key, replies[i]) end
  end

  local ZADD_OPTIONS = { NX = true, XX = true, GT = true, LT = true, CH = true, INCR = true }
  local BY_MEMBERS = {
    ZADD = function(args)
      local first = 3
      while ZADD_OPTIONS[string.upper(args[first])] do first = first + 1 end
      return scored(args, first + 1, 2)
    end,
    ZREM = function(args) return scored(args, 3, 1) end,
    SADD = belonging,
    SREM = belonging,
    HSET = function(args) return named(args, 2) end,
    HSETNX = function(args) return named(args, 2) end,
    HINCRBY = function(args) return named(args, 2) end,
    HDEL = function(args) return named(args, 1) end,
    LPUSH = function(args) return pushed(args, 'LPOP') end,
    RPUSH = function(args) return pushed(args, 'RPOP') end,
    XADD = logged,
  }
  local SIZES = { zset = 'ZCARD', set = 'SCARD', hash = 'HLEN', list = 'LLEN', stream = 'XLEN' }

  local function undo_of_members(step, i)
    local made = BY_MEMBERS[step.args[1]]
    local held = made and redis.call('TYPE', step.args[2])['ok']
    if not made or held ~= step.kind or redis.call(SIZES[held], step.args[2]) <= SMALL then return nil end
    return made(step.args, i)
  end

  local LIFETIMES = { EXPIRE = true, PEXPIRE = true, PEXPIREAT = true, PERSIST = true }

  -- A deadline that has passed takes the key with it, so that is not undone by the old one.
  local function undo_of_lifetime(step)
    local name, key = step.args[1], step.args[2]
    if not LIFETIMES[name] or not (may('PEXPIREAT', key, '1') and may('PERSIST', key)) then return nil end
    if name == 'PEXPIREAT' and not (tonumber(step.args[3]) > time()[1] * 1000 + 1000) then return nil end
    local deadline = redis.call('PEXPIRETIME', key)
    return function()
      if deadline > 0 then redis.call('PEXPIREAT', key, deadline) end
      if deadline == -1 then redis.call('PERSIST', key) end
    end
  end

  keep = function(step, i)
    local key = step.args[2]
    if step.keys == 1 and kept[key] then return end
    local undo = step.keys == 1 and (undo_of_lifetime(step) or undo_of_members(step, i))
    if undo then
      undoing[#undoing + 1] = undo
    else
      for k = 2, step.keys + 1 do keep_whole(step.args[k]) end
    end
  end
end

local function undo()
  for i = #undoing, 1, -1 do undoing[i]() end
end

local pcall_ = redis.pcall
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
  elseif mark == '<' or mark == '>' then
    local limit, whole = table.remove(step.args), table.remove(step.args)
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' then reply = within(step, reply, whole, limit) end
    if mark == '>' and type(reply) ~= 'table' then reply = 1 - reply end
  elseif mark == 'd' then
    local expected = table.remove(step.args)
    reply = pcall_(unpack(step.args))
    if type(reply) ~= 'table' or not reply.err then reply = digest_of(step, reply) == expected and 1 or 0 end
  else
    if mark == 'w' and (i < last or has(step, 'k')) then
      if not keep then be_ready_to_undo() end
      keep(step, i)
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
    and (has(step, '!') or (reply == 0 and string.find(mark, '[=~0<>d]') ~= nil))
  if failed or stopped then
    undo()
    return { i, replies }
  end
end
for _, trim in ipairs(trims) do redis.call(unpack(trim)) end
for _, i in ipairs(messages) do
  replies[i] = redis.call(unpack(steps[i].args))
end
return { 0, replies }
