// What the client sends every day, with all its encodings. Prints one JSON object.
import { Redis } from '@upstash/redis';

const options = { url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN };
const kv = new Redis(options);
const plain = new Redis({ ...options, responseEncoding: false, automaticDeserialization: false });
const piped = new Redis({ ...options, enableAutoPipelining: true });
const said = {};
const failure = async (promise) => promise.then(() => 'no error', (error) => error.message);

said.strings = [
  await kv.set('a', 'text'), await kv.get('a'), await kv.append('a', 'ual'), await kv.strlen('a'),
  await kv.getrange('a', 0, 3), await kv.setnx('a', 'x'), await kv.getset('a', 'OK'), await kv.get('a'),
  await kv.mset({ '{b}': 1, '{b}c': { d: [true, null] } }), await kv.mget('a', '{b}', '{b}c', 'none'), await kv.setex('e', 6000, 'x'),
  await kv.set('t', true), await kv.get('t'), await kv.set('n', null), await kv.get('n'), await kv.set('f', 1.5),
  await kv.get('f'), await kv.set('emoji', '🔑 "quoted"\n'), await kv.get('emoji'),
];
said.numbers = [await kv.incr('i'), await kv.incrby('i', 41), await kv.decr('i'), await kv.incrbyfloat('x', 1.5)];
said.keys = [
  await kv.exists('a', 'none'), await kv.type('a'), await kv.ttl('none'), await kv.expire('a', 1000), (await kv.ttl('a')) > 500,
  await kv.persist('a'), await kv.rename('a', '{a}a'), (await kv.keys('{a}*')).sort(), await kv.touch('{a}a'),
  await kv.unlink('{a}a'), await kv.pexpire('{b}', 600000), (await kv.pttl('{b}')) > 300000,
];
const found = [];
let cursor = '0';
do {
  const [next, keys] = await kv.scan(cursor, { match: 'e*', count: 3 });
  cursor = next;
  found.push(...keys);
} while (cursor !== '0');
said.scan = found.sort();
said.hashes = [
  await kv.hset('h', { one: 1, two: { deep: 'x' }, three: 'text' }), await kv.hget('h', 'two'), await kv.hgetall('h'),
  await kv.hmget('h', 'one', 'none'), (await kv.hkeys('h')).sort(), await kv.hlen('h'), await kv.hincrby('h', 'one', 2),
  await kv.hexists('h', 'none'), await kv.hdel('h', 'one', 'none'), await kv.hgetall('none'), await kv.hsetnx('h', 'two', 1),
];
said.sets = [
  await kv.sadd('s', 'a', 'b', 3), (await kv.smembers('s')).sort(), await kv.sismember('s', 'a'),
  await kv.smismember('s', ['a', 'z']), await kv.scard('s'), await kv.srem('s', 'a'), await kv.smembers('none'),
];
said.sorted = [
  await kv.zadd('z', { score: 1, member: 'one' }, { score: 2.5, member: { id: 2 } }), await kv.zrange('z', 0, -1),
  await kv.zrange('z', 0, -1, { withScores: true, rev: true }), await kv.zscore('z', 'one'), await kv.zscore('z', 'none'),
  await kv.zincrby('z', 2, 'one'), await kv.zrank('z', 'one'), await kv.zcount('z', 2, '+inf'),
  await kv.zrange('z', '-inf', 3, { byScore: true, offset: 0, count: 1 }), await kv.zmscore('z', ['one', 'none']),
  await kv.zpopmin('z'), await kv.zremrangebyscore('z', 0, 10),
];
said.lists = [
  await kv.rpush('l', 'a', { b: 1 }, 3), await kv.lrange('l', 0, -1), await kv.lpop('l'), await kv.lindex('l', -1),
  await kv.llen('l'), await kv.ltrim('l', 0, 0), await kv.lpos('l', { b: 1 }), await kv.rpop('l'), await kv.lpop('none'),
];
const entry = await kv.xadd('x1', '1-1', { field: 'value', n: 1 });
said.streams = [entry, await kv.xrange('x1', '-', '+'), await kv.xlen('x1')];
const pipeline = kv.pipeline();
pipeline.set('p', 'x').incr('p').get('p').hset('h', { four: 4 });
said.pipeline = await pipeline.exec({ keepErrors: true });
said.piped = [...await Promise.all([piped.set('q', { a: 1 }), piped.incr('r')]), ...await Promise.all([piped.get('q'), piped.get('r')])];
said.transaction = await kv.multi().set('m', 1).incr('m').mget('m', '{m}none').exec();
said.plain = [await plain.set('w', 'OK'), await plain.get('w'), await plain.hgetall('h'), await plain.zscore('none', 'x')];
said.errors = [
  await failure(kv.hget('p', 'x')), await failure(kv.exec(['NOPE', 'x'])), await failure(kv.exec(['GET'])),
  await failure(kv.exec(['BLPOP', 'l', '0'])),
];
said.ping = [await kv.ping(), await kv.echo('hé'), await kv.dbsize() > 5, (await kv.time()).length];
console.log(JSON.stringify(said));
