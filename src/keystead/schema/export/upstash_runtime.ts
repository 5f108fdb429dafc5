// --- the keys ------------------------------------------------------------------------------------------------

/** How a value is stored: `write` makes its text, `read` takes the text, or what the client has parsed from it. */
export interface TypedForm<T> {
  write(value: T): string;
  read(raw: unknown): T;
}

export const asText: TypedForm<string> = {
  write: (value) => value,
  // A client with automaticDeserialization has parsed texts that look like JSON.
  read: (raw) => (typeof raw === "string" ? raw : typeof raw === "object" ? JSON.stringify(raw) : String(raw)),
};
export const asNumber: TypedForm<number> = { write: (value) => String(value), read: (raw) => Number(raw) };
export const asBoolean: TypedForm<boolean> = { write: (value) => String(value), read: (raw) => String(raw) === "true" };

export function asJson<T>(): TypedForm<T> {
  return {
    write: (value) => JSON.stringify(value),
    read: (raw) => (typeof raw === "string" ? JSON.parse(raw) : raw) as T,
  };
}

/** Text with a narrower type, such as one of several words. */
export function asWord<T extends string>(): TypedForm<T> {
  return asText as unknown as TypedForm<T>;
}

/** A number with a narrower type, such as one of several. */
export function asNumeral<T extends number>(): TypedForm<T> {
  return asNumber as unknown as TypedForm<T>;
}

/** A moment: a date, or a number of milliseconds since 1970. */
export type TypedMoment = Date | number;

/** How long a key lives; `extends`: whether a change of an existing key starts it anew. */
export type TypedLifetime =
  | { kind: "never" }
  | { kind: "after"; ms: number; extends: boolean }
  | { kind: "day"; zone: string }
  | { kind: "until"; unitMs: number; field?: string };

/** The deadline of a key that is written now, in milliseconds since 1970; undefined: none. */
function deadlineMs(lifetime: TypedLifetime, value: unknown, until: TypedMoment | undefined): number | undefined {
  switch (lifetime.kind) {
    case "never":
      return undefined;
    case "after":
      return Date.now() + lifetime.ms;
    case "day":
      return endOfDayMs(lifetime.zone);
    case "until": {
      if (lifetime.field === undefined && until === undefined) throw new RangeError("pass the moment until which it lives");
      if (lifetime.field === undefined) return Number(until);
      return momentMs((value as Record<string, unknown>)[lifetime.field], lifetime.unitMs);
    }
  }
}

/** A stored time in milliseconds since 1970; a number that is not a time stays as it is. */
function momentMs(stored: unknown, unitMs: number): number {
  return typeof stored === "number" ? stored * unitMs : Date.parse(String(stored));
}

/** An entry of an index that lists a record, with the lifetime of the index; `score`: the index is a sorted set. */
export interface TypedEntry {
  key: string;
  member: string;
  score?: number;
  lifetime: TypedLifetime;
}

/** What is written and removed together with a record: its index entries, and the keys that it owns. */
export interface TypedRelations<T> {
  entries: (value: T, atMs: number) => TypedEntry[];
  owned: string[];
}

type TypedBatch = ReturnType<Redis["multi"]>;

/** Give a key its lifetime, in a transaction that has written it. `at`: its deadline. */
function expire(batch: TypedBatch, key: string, lifetime: TypedLifetime, at: number | undefined): void {
  if (at === undefined || lifetime.kind === "never") return;
  if (lifetime.kind === "after" && lifetime.extends) batch.pexpire(key, lifetime.ms);
  else if (lifetime.kind === "after") batch.pexpire(key, lifetime.ms, "NX");
  else batch.pexpireat(key, Math.round(at), "NX");
  if (lifetime.kind === "until") batch.pexpireat(key, Math.round(at), "GT");
}

/** List a record. `isNew`: otherwise only the scores of existing entries change. */
function list(batch: TypedBatch, entries: TypedEntry[], at: number | undefined, isNew: boolean): void {
  for (const { key, member, score, lifetime } of entries) {
    if (score !== undefined && isNew) batch.zadd(key, { score, member });
    else if (score !== undefined) batch.zadd(key, { xx: true }, { score, member });
    else if (isNew) batch.sadd(key, member);
    else continue;
    expire(batch, key, lifetime, lifetime.kind === "until" ? at : deadlineMs(lifetime, undefined, undefined));
  }
}

function unlist(batch: TypedBatch, entries: TypedEntry[]): void {
  for (const { key, member, score } of entries) {
    if (score === undefined) batch.srem(key, member);
    else batch.zrem(key, member);
  }
}

/** The next midnight in a time zone, in milliseconds since 1970. */
function endOfDayMs(zone: string): number {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric",
    hour: "numeric", minute: "numeric", second: "numeric",
  });
  const local = (ms: number): number => {
    const at = Object.fromEntries(format.formatToParts(ms).map((part) => [part.type, Number(part.value)]));
    return Date.UTC(at.year ?? 0, (at.month ?? 1) - 1, at.day, at.hour, at.minute, at.second);
  };
  const today = new Date(local(Date.now()));
  const midnight = Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate() + 1);
  const guess = midnight - (local(midnight) - midnight);
  return midnight - (local(guess) - guess);
}

/** Names and values in a reply: an object, or, from a client that does not parse replies, a list of both in turn. */
function entriesOf(reply: unknown): [string, unknown][] {
  if (!Array.isArray(reply)) return Object.entries(reply ?? {});
  const found: [string, unknown][] = [];
  for (let at = 0; at < reply.length; at += 2) found.push([String(reply[at]), reply[at + 1]]);
  return found;
}

const utf8 = new TextEncoder();

/** A value as it is written in a key: characters that have a meaning there are percent-escaped. */
function segment(name: string, value: string | number | bigint, special: RegExp, mostBytes?: number): string {
  const text = String(value);
  if (text === "") throw new RangeError(`${name} is empty; a key needs at least one character there`);
  const written = text.replace(special, (one) =>
    Array.from(utf8.encode(one), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""),
  );
  if (mostBytes !== undefined && utf8.encode(written).length > mostBytes)
    throw new RangeError(`${name} is longer than ${mostBytes} bytes`);
  return written;
}

/** What all keys have. */
export class TypedKey {
  constructor(
    protected readonly redis: Redis,
    readonly key: string,
    protected readonly lifetime: TypedLifetime,
  ) {}

  /** Whether there is such a key. */
  async exists(): Promise<boolean> {
    return (await this.redis.exists(this.key)) === 1;
  }

  /** True: it was deleted, with its index entries and the keys it owns. False: there was no such key. */
  async delete(): Promise<boolean> {
    const [first] = await this.removeWith((batch) => batch.del(this.key));
    return first === 1;
  }

  /** How many milliseconds it will live; -1: forever; -2: there is no such key. */
  leftMs(): Promise<number> {
    return this.redis.pttl(this.key);
  }

  /** Run a write and set the declared lifetime in the same transaction; the reply of the write. */
  protected async grow<R>(
    write: (batch: TypedBatch) => unknown,
    value: unknown,
    until: TypedMoment | undefined,
  ): Promise<R> {
    const batch = this.redis.multi();
    write(batch);
    expire(batch, this.key, this.lifetime, deadlineMs(this.lifetime, value, until));
    const [reply] = await batch.exec<unknown[]>();
    return reply as R;
  }

  /** Remove it, with all that belongs to it, in one transaction. */
  protected removeWith(first: (batch: TypedBatch) => unknown): Promise<unknown[]> {
    const batch = this.redis.multi();
    first(batch);
    return batch.exec<unknown[]>();
  }
}

/** One value. */
export class TypedValue<T> extends TypedKey {
  constructor(
    redis: Redis,
    key: string,
    lifetime: TypedLifetime,
    private readonly form: TypedForm<T>,
    private readonly relations?: TypedRelations<T>,
  ) {
    super(redis, key, lifetime);
  }

  /** The value; null: there is none. */
  async get(): Promise<T | null> {
    return this.read(await this.redis.get<unknown>(this.key));
  }

  /** Write it, whether it exists or not, and start its lifetime. */
  async set(value: T, until?: TypedMoment): Promise<void> {
    await this.write(value, until, this.expiry(value, until), true);
  }

  /** Write it only if there is none. False: there was one. */
  async add(value: T, until?: TypedMoment): Promise<boolean> {
    return (await this.write(value, until, { ...this.expiry(value, until), nx: true }, true)) === "OK";
  }

  /** Change it only if it exists. It keeps its deadline, unless its lifetime is sliding or comes with the value. */
  async replace(value: T, until?: TypedMoment): Promise<boolean> {
    const keeps = this.lifetime.kind === "day" || (this.lifetime.kind === "after" && !this.lifetime.extends);
    const options = { ...(keeps ? { keepTtl: true } : this.expiry(value, until)), xx: true };
    return (await this.write(value, until, options, false)) === "OK";
  }

  /** Read and delete it in one step: of several callers one gets it. */
  async consume(): Promise<T | null> {
    const [raw] = await this.removeWith((batch) => batch.getdel<unknown>(this.key));
    return this.read(raw);
  }

  protected override removeWith(first: (batch: TypedBatch) => unknown): Promise<unknown[]> {
    return super.removeWith((batch) => {
      first(batch);
      if (this.relations === undefined) return;
      unlist(batch, this.relations.entries({} as T, 0));
      if (this.relations.owned.length > 0) batch.del(...this.relations.owned);
    });
  }

  private async write(value: T, until: TypedMoment | undefined, options: object, isNew: boolean): Promise<unknown> {
    if (this.relations === undefined) return this.redis.set(this.key, this.form.write(value), options);
    const batch = this.redis.multi();
    batch.set(this.key, this.form.write(value), options);
    const at = deadlineMs(this.lifetime, value, until);
    list(batch, this.relations.entries(value, at ?? Date.now()), at, isNew);
    const [reply] = await batch.exec<unknown[]>();
    return reply;
  }

  private expiry(value: T, until: TypedMoment | undefined): { px?: number; pxat?: number } {
    if (this.lifetime.kind === "after") return { px: this.lifetime.ms };
    const at = deadlineMs(this.lifetime, value, until);
    return at === undefined ? {} : { pxat: Math.round(at) };
  }

  private read(raw: unknown): T | null {
    return raw === null || raw === undefined ? null : this.form.read(raw);
  }
}

/** An integer. Beyond 2^53 it is not exact in JavaScript. */
export class TypedCounter extends TypedKey {
  /** The number; 0: there is no such key. */
  async get(): Promise<number> {
    return Number((await this.redis.get<unknown>(this.key)) ?? 0);
  }

  /** Add to it; the result. */
  increment(by = 1, until?: TypedMoment): Promise<number> {
    return this.grow<number>((batch) => batch.incrby(this.key, by), undefined, until);
  }

  /** Subtract from it; the result. */
  decrement(by = 1, until?: TypedMoment): Promise<number> {
    return this.increment(-by, until);
  }
}

type TypedForms<T> = { [Name in keyof T]-?: TypedForm<Exclude<T[Name], undefined>> };

/** A record whose fields are stored one by one. */
export class TypedRecord<T extends object> extends TypedKey {
  constructor(
    redis: Redis,
    key: string,
    lifetime: TypedLifetime,
    private readonly forms: TypedForms<T>,
    private readonly relations?: TypedRelations<T>,
  ) {
    super(redis, key, lifetime);
  }

  /** The record; null: there is none. */
  async get(): Promise<T | null> {
    const fields = entriesOf(await this.redis.hgetall<Record<string, unknown>>(this.key));
    if (fields.length === 0) return null;
    const known = fields.filter(([name]) => name in this.forms);
    return Object.fromEntries(known.map(([name, one]) => [name, this.form(name).read(one)])) as T;
  }

  /** One field; null: there is none. */
  async getField<Name extends keyof T & string>(name: Name): Promise<T[Name] | null> {
    const raw = await this.redis.hget<unknown>(this.key, name);
    return raw === null ? null : (this.form(name).read(raw) as T[Name]);
  }

  /** Write the whole record, in place of what was there, and start its lifetime. */
  async set(record: T, until?: TypedMoment): Promise<void> {
    await this.grow(
      (batch) => {
        batch.del(this.key);
        batch.hset(this.key, this.written(record));
        const at = deadlineMs(this.lifetime, record, until);
        if (this.relations !== undefined) list(batch, this.relations.entries(record, at ?? Date.now()), at, true);
      },
      record,
      until,
    );
  }

  /** Change some fields of an existing record. */
  async update(fields: Partial<T>): Promise<void> {
    const written = this.written(fields);
    if (this.lifetime.kind === "after" && this.lifetime.extends)
      await this.grow((batch) => batch.hset(this.key, written), fields, undefined);
    else await this.redis.hset(this.key, written);
  }

  protected override removeWith(first: (batch: TypedBatch) => unknown): Promise<unknown[]> {
    return super.removeWith((batch) => {
      first(batch);
      if (this.relations === undefined) return;
      unlist(batch, this.relations.entries({} as T, 0));
      if (this.relations.owned.length > 0) batch.del(...this.relations.owned);
    });
  }

  private form(name: string): TypedForm<unknown> {
    return (this.forms as Record<string, TypedForm<unknown>>)[name] as TypedForm<unknown>;
  }

  private written(fields: Partial<T>): Record<string, string> {
    const given = Object.entries(fields).filter(([, value]) => value !== undefined);
    return Object.fromEntries(given.map(([name, value]) => [name, this.form(name).write(value)]));
  }
}

/** Fields of any name. */
export class TypedMap<N extends string, V> extends TypedKey {
  constructor(redis: Redis, key: string, lifetime: TypedLifetime, private readonly form: TypedForm<V>) {
    super(redis, key, lifetime);
  }

  /** All fields; empty: there is no such key. */
  async get(): Promise<Partial<Record<N, V>>> {
    const fields = entriesOf(await this.redis.hgetall<Record<string, unknown>>(this.key));
    return Object.fromEntries(fields.map(([name, one]) => [name, this.form.read(one)])) as Partial<Record<N, V>>;
  }

  /** One field; null: there is none. */
  async getField(name: N): Promise<V | null> {
    const raw = await this.redis.hget<unknown>(this.key, name);
    return raw === null ? null : this.form.read(raw);
  }

  /** Write these fields; how many are new. */
  set(fields: Partial<Record<N, V>>, until?: TypedMoment): Promise<number> {
    const entries = Object.entries(fields) as [string, V][];
    const written = Object.fromEntries(entries.map(([name, value]) => [name, this.form.write(value)]));
    return this.grow<number>((batch) => batch.hset(this.key, written), fields, until);
  }

  /** Remove these fields; how many there were. */
  remove(...names: N[]): Promise<number> {
    return this.redis.hdel(this.key, ...names);
  }
}

/** Distinct members. */
export class TypedSet<M> extends TypedKey {
  constructor(redis: Redis, key: string, lifetime: TypedLifetime, private readonly form: TypedForm<M>) {
    super(redis, key, lifetime);
  }

  /** Add members; how many are new. */
  add(members: [M, ...M[]], until?: TypedMoment): Promise<number> {
    const [first, ...others] = members.map((one) => this.form.write(one));
    return this.grow<number>((batch) => batch.sadd(this.key, first as string, ...others), undefined, until);
  }

  /** Remove members; how many there were. */
  remove(...members: M[]): Promise<number> {
    return this.redis.srem(this.key, ...members.map((one) => this.form.write(one)));
  }

  async has(member: M): Promise<boolean> {
    return (await this.redis.sismember(this.key, this.form.write(member))) === 1;
  }

  async members(): Promise<M[]> {
    return (await this.redis.smembers<unknown[]>(this.key)).map((one) => this.form.read(one));
  }

  count(): Promise<number> {
    return this.redis.scard(this.key);
  }
}

/** Distinct members, each with a score, in the order of their scores. */
export class TypedSortedSet<M> extends TypedKey {
  constructor(redis: Redis, key: string, lifetime: TypedLifetime, private readonly form: TypedForm<M>) {
    super(redis, key, lifetime);
  }

  /** Set the score of a member. True: it is new. */
  async add(member: M, score: number, until?: TypedMoment): Promise<boolean> {
    const entry = { score, member: this.form.write(member) };
    return (await this.grow<number>((batch) => batch.zadd(this.key, entry), undefined, until)) === 1;
  }

  /** Add to the score of a member; the result. */
  async increment(member: M, by = 1, until?: TypedMoment): Promise<number> {
    const text = this.form.write(member);
    return Number(await this.grow<number>((batch) => batch.zincrby(this.key, by, text), undefined, until));
  }

  /** Remove members; how many there were. */
  remove(...members: M[]): Promise<number> {
    return this.redis.zrem(this.key, ...members.map((one) => this.form.write(one)));
  }

  /** The score of a member; null: there is none. */
  async score(member: M): Promise<number | null> {
    const score: unknown = await this.redis.zscore(this.key, this.form.write(member));
    return score === null ? null : Number(score);
  }

  /** Members from `start` to `stop`, both included, lowest first; `rev`: highest first. */
  async range(start = 0, stop = -1, options: { rev?: boolean } = {}): Promise<{ member: M; score: number }[]> {
    const rev = options.rev === true ? ({ rev: true } as const) : {};
    return this.pairs(await this.redis.zrange<unknown[]>(this.key, start, stop, { withScores: true, ...rev }));
  }

  /** Members whose scores are from `low` to `high`, both included. */
  async between(low: number, high: number): Promise<{ member: M; score: number }[]> {
    const bound = (one: number): number => (Number.isFinite(one) ? one : ((one < 0 ? "-inf" : "+inf") as never));
    const options = { byScore: true, withScores: true } as const;
    return this.pairs(await this.redis.zrange<unknown[]>(this.key, bound(low), bound(high), options));
  }

  count(): Promise<number> {
    return this.redis.zcard(this.key);
  }

  private pairs(flat: unknown[]): { member: M; score: number }[] {
    const found = [];
    for (let at = 0; at < flat.length; at += 2)
      found.push({ member: this.form.read(flat[at]), score: Number(flat[at + 1]) });
    return found;
  }
}

/** Items in order. With `keep`, a write drops the oldest beyond that many. */
export class TypedList<T> extends TypedKey {
  constructor(
    redis: Redis,
    key: string,
    lifetime: TypedLifetime,
    private readonly form: TypedForm<T>,
    private readonly keep?: number,
  ) {
    super(redis, key, lifetime);
  }

  /** Add an item at the front; the length before anything is dropped. */
  prepend(item: T, until?: TypedMoment): Promise<number> {
    return this.grow<number>(
      (batch) => {
        batch.lpush(this.key, this.form.write(item));
        if (this.keep !== undefined) batch.ltrim(this.key, 0, this.keep - 1);
      },
      undefined,
      until,
    );
  }

  /** Add an item at the end; the length before anything is dropped. */
  append(item: T, until?: TypedMoment): Promise<number> {
    return this.grow<number>(
      (batch) => {
        batch.rpush(this.key, this.form.write(item));
        if (this.keep !== undefined) batch.ltrim(this.key, -this.keep, -1);
      },
      undefined,
      until,
    );
  }

  /** The items from `start` to `stop`, both included. */
  async items(start = 0, stop = -1): Promise<T[]> {
    return (await this.redis.lrange<unknown>(this.key, start, stop)).map((one) => this.form.read(one));
  }

  /** Remove and return the first item; null: there is none. */
  async popFirst(): Promise<T | null> {
    const raw = await this.redis.lpop<unknown>(this.key);
    return raw === null ? null : this.form.read(raw);
  }

  /** Remove and return the last item; null: there is none. */
  async popLast(): Promise<T | null> {
    const raw = await this.redis.rpop<unknown>(this.key);
    return raw === null ? null : this.form.read(raw);
  }

  count(): Promise<number> {
    return this.redis.llen(this.key);
  }
}

/** Entries that are appended, each with an id. */
export class TypedLog<T> extends TypedKey {
  constructor(
    redis: Redis,
    key: string,
    lifetime: TypedLifetime,
    private readonly form: TypedForm<T>,
    private readonly keep?: number,
  ) {
    super(redis, key, lifetime);
  }

  /** Append an item; its id. */
  append(item: T, until?: TypedMoment): Promise<string> {
    const trim =
      this.keep === undefined
        ? undefined
        : { trim: { type: "MAXLEN" as const, comparison: "=" as const, threshold: this.keep } };
    const entry = { data: this.form.write(item) };
    return this.grow<string>((batch) => batch.xadd(this.key, "*", entry, trim), undefined, until);
  }

  /** The newest entries, newest first. */
  async latest(count: number): Promise<{ id: string; item: T }[]> {
    const found: unknown = await this.redis.xrevrange<{ data: unknown }>(this.key, "+", "-", count);
    const entries = Array.isArray(found) ? (found as [string, unknown][]) : entriesOf(found);
    return entries.map(([id, entry]) => ({ id, item: this.form.read(entriesOf(entry)[0]?.[1]) }));
  }

  count(): Promise<number> {
    return this.redis.xlen(this.key);
  }
}

/** Messages to those who listen now. */
export class TypedChannel<T> {
  constructor(
    private readonly redis: Redis,
    readonly key: string,
    private readonly form: TypedForm<T>,
  ) {}

  /** Send a message; how many got it. */
  publish(message: T): Promise<number> {
    return this.redis.publish(this.key, this.form.write(message));
  }
}
