// @upstash/ratelimit, whose limits are scripts.
import { Ratelimit } from '@upstash/ratelimit';
import { Redis } from '@upstash/redis';

const redis = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
const said = {};
for (const [name, limiter] of Object.entries({
  fixed: Ratelimit.fixedWindow(3, '1 h'),
  sliding: Ratelimit.slidingWindow(3, '1 h'),
  bucket: Ratelimit.tokenBucket(3, '1 h', 3),
})) {
  const limits = new Ratelimit({ redis, limiter, prefix: name, ephemeralCache: false });
  const outcomes = [];
  for (let call = 0; call < 5; call++) outcomes.push((await limits.limit('user')).success);
  said[name] = outcomes;
  said[`${name} left`] = (await limits.getRemaining('user')).remaining;
}
console.log(JSON.stringify(said));
