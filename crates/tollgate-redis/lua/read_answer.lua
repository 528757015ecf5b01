-- Returns an answer, if there is one of at most the maximum length.
-- KEYS: answer. ARGV: maximum length.
if redis.call('STRLEN', KEYS[1]) <= tonumber(ARGV[1]) then
  return redis.call('GET', KEYS[1])
end
return false
