// Random writes, good and bad, as clients that know nothing of the schema send them. Prints what became of them.
import { Redis } from '@upstash/redis';

const kv = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
let seed = 42;
const random = (below) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
const pick = (list) => list[random(list.length)];
const day = () => `2026-11-${10 + random(9)}`;
const uid = () => pick([1, 2, 3, 44, 'x', -1]);

const writes = [
  (p) => p.set(`cart:${uid()}`, { items: ['tea'], note: 'n' }, pick([{ ex: 3600 }, { ex: 60 }, { ex: 90000 }, {}])),
  (p) => p.set(`cart:${uid()}`, pick([{ items: 'tea' }, 'text', 7, [], { note: 1 }]), { ex: 3600 }),
  (p) => p.set(`item:${uid()}:${pick(['tea', 'milk'])}`, pick(['a', 'b']), pick([{ px: 3600000 }, { keepTtl: true }, {}])),
  (p) => p.setex(`item:1:tea`, pick([3600, 10]), 'x'),
  (p) => p.zadd('offers', { score: random(100), member: pick(['a', 'b', 'c']) }),
  (p) => p.set(`offer:${pick(['a', 'b'])}`, { price: 1, ends_at: Date.now() + 3600000 }, pick([{ ex: 3600 }, {}])),
  (p) => p.incr(`visits:${day()}`),
  (p) => p.incrby(`visits:${day()}`, random(9)),
  (p) => p.expire(`visits:${day()}`, pick([172800, 5])),
  (p) => p.sadd(`tags:${pick(['tea', 'milk'])}`, pick(['hot', 'cold'])),
  (p) => p.expire(`tags:tea`, 100),
  (p) => p.hset(`profile:${uid()}`, { name: pick(['Ann', 'あん']) }),
  (p) => p.lpush(pick(['cart:1', 'list', 'offers']), 'x'),
  (p) => p.set(pick(['unknown', 'other:1', 'cart', 'cart:1:2', 'offers']), 'x'),
  (p) => p.rename(pick(['cart:1', 'item:1:tea']), pick(['cart:2', 'stray', 'item:1:milk'])),
  (p) => p.append(pick(['cart:1', 'item:1:tea', 'stray']), 'x'),
  (p) => p.persist(pick(['cart:1', 'tags:tea', 'item:1:tea'])),
  (p) => p.del(pick(['cart:1', 'offers', 'stray', 'visits:2026-11-10'])),
  (p) => p.get('cart:1'),
];

const counts = {};
const total = 10_000;
const batch = 100;
for (let sent = 0; sent < total; sent += batch) {
  const pipeline = kv.pipeline();
  for (let one = 0; one < batch; one++) pick(writes)(pipeline);
  for (const { error } of await pipeline.exec({ keepErrors: true })) {
    const word = error ? error.split(' ').slice(0, 2).join(' ') : 'done';
    counts[word] = (counts[word] ?? 0) + 1;
  }
}
console.log(JSON.stringify(counts));
