-- What surrounds a script: an error inside of its reply has no place in JSON, so that it becomes a third part.
local reply = run(KEYS, ARGV)
local replies = type(reply) == 'table' and reply[2]
if type(replies) == 'table' then
  local last = replies[#replies]
  if type(last) == 'table' and last.err then
    replies[#replies] = false
    reply[3] = last.err
  end
end
return reply
