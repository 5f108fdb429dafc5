// Publish and subscribe, until three messages have come.
import { Redis } from '@upstash/redis';

const kv = new Redis({ url: process.env.KV_REST_API_URL, token: process.env.KV_REST_API_TOKEN });
const messages = [];
const subscriber = kv.subscribe(['news']);
await new Promise((resolve, reject) => {
  subscriber.on('error', reject);
  subscriber.on('message', (message) => messages.push(message) === 3 && resolve());
  subscriber.on('subscribe', async (count) => {
    messages.push(count);
    await kv.publish('other', 'not for us');
    await kv.publish('news', { hello: 'wörld' });
    await kv.publish('news', 'plain, with commas');
  });
});
await subscriber.unsubscribe();
console.log(JSON.stringify(messages));
