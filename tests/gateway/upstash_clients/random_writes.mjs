// Random writes, good and bad, through every way of the client. Prints how many were done, and the refusals by code.
import { Redis } from "@upstash/redis";

const redis = Redis.fromEnv();
const count = Number(process.env.WRITES);
let state = Number(process.env.SEED);
const random = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const one = (choices) => choices[Math.floor(random() * choices.length)];

const soon = Date.now() + 3 * 86400000;
const names = "cart draft offer ticket visit name account old hits total member span bag tags ranks news log item nothing";
const keys = [...names.split(" ").flatMap((name) => [`${name}:1`, `${name}:2`]), "session:7:1", "user:7:sessions"];
const key = (...kinds) => one(random() < 0.8 ? keys.filter((one) => kinds.includes(one.split(":")[0])) : keys);
const strings = ["cart", "draft", "offer", "ticket", "visit", "name", "old", "item", "session"];
const value = () => one([{ items: 1 }, { items: "x" }, { to: "x", expires_at: soon }, 1, "x", "", { made_at: 5 }]);
const expiry = () => one([{}, { ex: 60 }, { ex: 60 }, { px: 100 * 86400000 }, { pxat: soon }, { keepTtl: true }]);
const condition = () => one([{}, {}, { nx: true }, { xx: true }]);
const seconds = () => one([60, 3600, 400 * 86400]);
const field = () => one(["name", "visits", "low", "high", "a"]);
const member = () => one(["1", "2", "x"]);
const string = () => key(...strings);
const record = () => key("member", "span", "bag");

const writes = [
  (on) => on.set(string(), value(), { ...expiry(), ...condition() }),
  (on) => on.set(string(), value(), { ...expiry(), ...condition() }),
  (on) => on.setex(string(), seconds(), value()),
  (on) => on.mset({ [string()]: value(), [string()]: value() }),
  (on) => on.set(key("hits", "total"), 1, expiry()),
  (on) => on.incr(key("hits", "total")),
  (on) => on.append(string(), "x"),
  (on) => on.expire(one(keys), seconds()),
  (on) => on.persist(one(keys)),
  (on) => on.del(one(keys)),
  (on) => on.rename(one(keys), one(keys)),
  (on) => on.hset(record(), { [field()]: one([1, 2, "x"]) }),
  (on) => on.hset(record(), { low: 1, high: one([1, 2, 0]) }),
  (on) => on.hincrby(record(), field(), 1),
  (on) => on.hdel(record(), field()),
  (on) => on.sadd(key("tags", "user"), member()),
  (on) => on.spop(key("tags", "user")),
  (on) => on.zadd(key("ranks"), { score: 1, member: member() }),
  (on) => on.zincrby(key("ranks"), 1, member()),
  (on) => on.lpush(key("news"), value()),
  (on) => on.lset(key("news"), 0, value()),
  (on) => on.xadd(key("log"), "*", { [one(["data", "data", "x"])]: JSON.stringify(value()) }),
];

const tally = {};
const note = (error) => {
  const code = error === undefined ? "written" : (/\b([a-z]+-[a-z]+|unreadable|orphan)\b/.exec(error) ?? ["error"])[0];
  tally[code] = (tally[code] ?? 0) + 1;
};
let done = 0;
while (done < count) {
  const way = random();
  if (way < 0.1) {
    done += 1;
    await one(writes)(redis).then(() => note(), (error) => note(error.message));
  } else if (way < 0.5) {
    const batch = redis.multi();
    const grown = one([key("tags"), key("bag"), key("news"), key("member")]);
    one([
      () => batch.sadd(grown, one([1, "x"])),
      () => batch.hset(grown, { [one(["name", "a"])]: 1 }),
      () => batch.lpush(grown, { items: 1 }),
      () => one(writes)(batch),
    ])();
    if (random() < 0.8) batch.expire(grown, seconds());
    done += 2;
    await batch.exec().then(() => note(), (error) => note(error.message));
  } else {
    const batch = redis.pipeline();
    for (let number = 0; number < 30; number += 1) one(writes)(batch);
    done += 30;
    for (const reply of await batch.exec({ keepErrors: true })) note(reply.error);
  }
}
console.log(JSON.stringify(tally));
