-- Returns an answer, if there is one of at most the maximum length.
-- KEYS: answer. ARGV: maximum length.
local answer = redis.call('GET', KEYS[1])
if answer and #answer <= tonumber(ARGV[1]) then
  return answer
end
return false
