-- Arguments that JSON cannot carry: of a byte that is not printable ASCII, the two bytes of the character 256 + byte.
local function decode(words)
  local plain = {}
  for i, word in ipairs(words) do
    plain[i] = string.gsub(word, '([\196-\199])([\128-\191])', function(high, low)
      return string.char((string.byte(high) - 196) * 64 + string.byte(low) - 128)
    end)
  end
  return plain
end
local KEYS, ARGV = decode(KEYS), decode(ARGV)
