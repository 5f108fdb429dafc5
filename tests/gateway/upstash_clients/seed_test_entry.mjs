import { Redis } from '@upstash/redis';

const kv = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
const id = 'TESTKEY123';
const expiresAt = Date.now() - 60_000; // すでに期限切れ
await kv.zadd('receive:edge:index', { score: expiresAt, member: id });
await kv.set(`receive:edge:meta:${id}`, {
  id,
  blob_name: 'user_prize/demo/demo.zip',
  expires_at: new Date(expiresAt).toISOString(),
  short_token: 'short-demo',
});
await kv.set('receive:token:short-demo', id);
console.log('seeded test entry', { id });
