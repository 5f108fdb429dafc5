-- One command, for the sake of its arguments. A number of Lua's has no room for 64 bits: a large counter is text.
local reply = redis.pcall(unpack(ARGV))
local name = ARGV[1]
if (name == 'INCRBY' or name == 'DECRBY') and type(reply) == 'number' and math.abs(reply) >= 2 ^ 53 then
  return redis.call('GET', ARGV[2])
end
if name == 'HINCRBY' and type(reply) == 'number' and math.abs(reply) >= 2 ^ 53 then
  return redis.call('HGET', ARGV[2], ARGV[3])
end
return reply
