-- Arguments that JSON cannot carry: of a byte that is not printable ASCII, the two bytes of the character 256 + byte.
local bytes = {}
for byte = 0, 255 do
  bytes[string.char(196 + math.floor(byte / 64), 128 + byte % 64)] = string.char(byte)
end
local function decode(words)
  local plain = {}
  for i, word in ipairs(words) do plain[i] = string.gsub(word, '[\196-\199][\128-\191]', bytes) end
  return plain
end
local KEYS, ARGV = decode(KEYS), decode(ARGV)
