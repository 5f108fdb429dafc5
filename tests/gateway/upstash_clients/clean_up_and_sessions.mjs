// The access patterns of the key document: sessions, OAuth state, short tokens, locks, the daily clean-up.
import { Redis } from '@upstash/redis';

const kv = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
const said = {};

// sessions
const session = { uid: '42', name: 'あん', scope: 'identify', access_expires_at: 1700000000000, ver: 1 };
await kv.set('sess:s1', session, { ex: 2592000 });
await kv.sadd('user:42:sessions', 's1');
await kv.expire('user:42:sessions', 2592000);
said.session = await kv.get('sess:s1');
said.ttl = [await kv.ttl('sess:s1'), await kv.ttl('user:42:sessions')];
said.sessions = await kv.smembers('user:42:sessions');
// in one pipeline, so that the lock cannot expire in between
said.lock = await kv.pipeline().set('lock:sess:s1', '1', { nx: true, ex: 5 }).set('lock:sess:s1', '1', { nx: true, ex: 5 }).exec();
await kv.del('sess:s1');
await kv.srem('user:42:sessions', 's1');
said.gone = [await kv.get('sess:s1'), await kv.exists('user:42:sessions')];

// OAuth state, used once
await kv.set('discord:auth:st', { verifier: 'v', loginContext: 'pwa' }, { ex: 600 });
said.consumed = await Promise.all([1, 2, 3].map(() => kv.getdel('discord:auth:st')));

// the daily clean-up of what was seeded
const due = await kv.zrange('receive:edge:index', 0, Date.now(), { byScore: true });
said.due = due;
for (const id of due) {
  const meta = await kv.get(`receive:edge:meta:${id}`);
  said.meta = meta;
  said.deleted = await kv.del(`receive:edge:meta:${id}`, `receive:token:${meta.short_token}`);
  await kv.zrem('receive:edge:index', id);
}
said.left = await kv.zcard('receive:edge:index');
console.log(JSON.stringify(said));
