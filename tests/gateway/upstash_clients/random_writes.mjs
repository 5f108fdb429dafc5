// Random writes, good and bad, as clients that know nothing of the schema send them. Prints what became of them.
import { Redis } from '@upstash/redis';

const kv = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
let seed = 42;
const random = (below) => {
  seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
  return (seed >>> 12) % below; // its lowest bits repeat soon
};
const pick = (list) => list[random(list.length)];
const counts = {};
const day = () => `2026-11-${10 + random(9)}`;
const uid = () => pick([1, 2, 3, 44, 'x', -1]);

const writes = [
  (p) => p.set(`cart:${uid()}`, { items: ['tea'], note: 'n' }, pick([{ ex: 3600 }, { ex: 60 }, { ex: 90000 }, {}])),
  (p) => p.set(`cart:${uid()}`, pick([{ items: 'tea' }, 'text', 7, [], { note: 1 }]), { ex: 3600 }),
  (p) => p.set(`item:${uid()}:${pick(['tea', 'milk'])}`, pick(['a', 'b']), pick([{ px: 3600000 }, { keepTtl: true }, {}])),
  (p) => p.setex(`item:1:tea`, pick([3600, 10]), 'x'),
  (p) => p.zadd('offers', { score: random(100), member: pick(['a', 'b', 'c']) }),
  (p) => p.set(`offer:${pick(['a', 'b'])}`, { price: 1, ends_at: Date.now() + 3600000 }, pick([{ ex: 3600 }, {}])),
  (p, at = Date.now() + 3600000) => p.set('offer:c', { price: 1, ends_at: at }, { pxat: at + pick([0, 0, -60000, 60000]) }),
  (p) => p.hset(`address:${uid()}`, pick([{ city: 'Kobe', floor: 2 }, { floor: 3 }, { floor: 'x' }, { town: 'Kobe' }])),
  (p) => p.hincrby(`address:${uid()}`, pick(['floor', 'city']), 1),
  (p) => p.hdel(`address:${uid()}`, pick(['floor', 'city'])),
  (p) => p.lpush(`recent:${uid()}`, pick(['tea', 'milk'])),
  (p) => p.rpush('recent:1', 'a', 'b', 'c', 'd'),
  (p) => p.lset('recent:1', 0, 'cake'),
  (p) => p.xadd('repairs:tea', '*', { data: pick([{ text: 'mended' }, { txt: 1 }]) }),
  (p) => p.xadd('repairs:milk', '*', { data: { text: 'mended' } }, { trim: { type: 'MAXLEN', threshold: pick([3, 9]), comparison: '=' } }),
  (p) => p.xadd('repairs:tea', '*', { text: 'mended' }),
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
  (p) => p.publish(pick(['news:1', 'news:x', 'stray']), pick([{ text: 'hello' }, { txt: 1 }, 'x'])),
  (p) => p.get('cart:1'),
];

// Orders are listed in an index and own their receipts, and collections begin with their lifetime: such changes are
// transactions. Often, a part is missing.
const changes = [
  (m, id, at) => m.set(`order:${id}`, { made_at: at }).zadd('orders', { score: pick([at, at, at + 1]), member: id }),
  (m, id) => m.set(`receipt:${id}`, 'paid', { ex: 60 }),
  (m, id) => m.del(`order:${id}`, ...pick([[`receipt:${id}`], []])).zrem('orders', pick([id, id, 'other'])),
  (m, id, at) => m.set(`order:${id}`, { made_at: at }),
  (m) => m.hset(`address:${uid()}`, pick([{ city: 'Kobe' }, { floor: 1 }])).expire('address:1', pick([2592000, 60])),
  (m) => m.lpush('recent:1', 'tea', 'milk').ltrim('recent:1', 0, pick([2, 9])).expire('recent:1', pick([86400, 999999])),
  (m, id) => m.zrem('orders', id),
  (m, id) => m.zadd('orders', { score: 1, member: id }),
];

const count = (error) => {
  const word = error ? error.match(/WRITEREFUSED [\w-]+:/)?.[0] ?? error.split(' ').slice(0, 2).join(' ') : 'done';
  counts[word] = (counts[word] ?? 0) + 1;
};

const total = 10_000;
const transactions = 1_000;
const batch = 100;
for (let sent = 0; sent < transactions; sent++) {
  const multi = kv.multi();
  pick(changes)(multi, pick(['a', 'b', 'c']), 1_700_000_000_000 + random(9));
  await multi.exec().then(() => count(), ({ message }) => count(message));
}
for (let sent = transactions; sent < total; sent += batch) {
  const pipeline = kv.pipeline();
  for (let one = 0; one < batch; one++) pick(writes)(pipeline);
  for (const { error } of await pipeline.exec({ keepErrors: true })) count(error);
}
console.log(JSON.stringify(counts));
