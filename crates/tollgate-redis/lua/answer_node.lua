-- Leaves the answer to a question, if it is open.
-- KEYS: questions, answer. ARGV: question, answer, lifetime in ms.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
