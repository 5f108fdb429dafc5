"""The exported TypeScript client: it compiles strictly, and what it writes is what Python reads."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import BaseModel

from keystead import (
    Channel,
    Counter,
    Hash,
    Keyspace,
    List,
    Log,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    connect,
    end_of_day,
    never,
    sliding,
    until,
)
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens
from keystead.schema import EpochMs, EpochSeconds
from keystead.schema.doctor import examine
from keystead.schema.export import upstash_client
from keystead.schema.guard import GuardedStore, WriteGuard
from tests import servers

pytestmark = pytest.mark.anyio
FOREVER = never("a test")
DAY_MS = 86_400_000


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Cart(BaseModel):
    items: list[str]
    size: Size = Size.SMALL


class Offer(BaseModel):
    to: str
    expires_at: EpochMs


class Profile(BaseModel):
    name: str
    visits: int = 0
    cart: Cart | None = None


class Item(BaseModel):
    made_at: EpochSeconds


class ShopKeys(Keyspace):
    """A shop."""

    cart = Value("shop:cart:{user}", Cart, lifetime=after("90d"), doc="what somebody wants to buy")
    note = Value("shop:note:{user}-{number:int}", str, lifetime=sliding("1h", touch_every="1m"))
    page = Value("shop:page:{url:uri}[_{lang}]", str, lifetime=FOREVER)
    offer = Value("shop:offer:{id}", Offer, lifetime=until("expires_at", at_most="14d"))
    ticket = Value("shop:ticket:{id}", int, lifetime=until("ends"))
    size = Value("shop:size:{default}", Size, lifetime=end_of_day("Asia/Tokyo"))
    open_ = Value("shop:open", bool, lifetime=FOREVER)
    visits = Counter("shop:visits:{day:date}", lifetime=after("30d"))
    profile = Hash("shop:profile:{user}", Profile, lifetime=after("30d"))
    words = Hash("shop:words", dict[str, int], lifetime=after("1h"))
    tags = Set("shop:tags:{id}", int, lifetime=after("1h"))
    ranks = SortedSet("shop:ranks", str, lifetime=FOREVER)
    news = List("shop:news", Cart, keep=2, lifetime=after("7d"))
    log = Log("shop:log", Cart, keep=2, lifetime=FOREVER)
    photo = Value("shop:photo", bytes, lifetime=FOREVER)
    bell = Channel("shop:bell:{id}", Cart)

    sessions = Set("shop:user:{user}:sessions", str, lifetime=until("ends"))
    session = Value("shop:session:{user}:{sid}", str, lifetime=after("30d"), listed_in=sessions, owns="seen")
    seen = Counter("shop:seen:{sid}:of:{user}", lifetime=after("30d"))
    newest = SortedSet("shop:newest", int, lifetime=FOREVER)
    item = Hash("shop:item:{id:int}", Item, lifetime=FOREVER, listed_in=newest.by(score="made_at"))
    due = SortedSet("shop:due", str, lifetime=FOREVER)
    task = Value("shop:task:{id}", str, lifetime=after("1h"), listed_in=due)


USE = """
import { Redis } from "@upstash/redis";
import { createShopKeys } from "./keys.js";

declare const process: { env: Record<string, string | undefined> };
const redis = new Redis({
  url: process.env.URL as string,
  token: process.env.TOKEN as string,
  automaticDeserialization: process.env.PARSED === "yes",
});
const keys = createShopKeys(redis);
const said: unknown[] = [];
const say = async (one: Promise<unknown>) => said.push((await one) ?? null);
const codes = /no-deadline|unreadable|wrong-kind|unknown-key/;
const refused = async (one: Promise<unknown>) =>
  said.push(await one.then(() => "written", (error: Error) => codes.exec(error.message)?.[0]));
const soon = Number(process.env.SOON);

await say(keys.cart("ann:{1}").get());
await keys.cart("ann:{1}").set({ items: ["a", "b"], size: "large" });
await say(keys.cart("ann:{1}").get());
await say(keys.cart("ann:{1}").add({ items: [], size: "small" }));
await say(keys.cart("ann:{1}").replace({ items: ["c"], size: "small" }));
await keys.note("ann-lee", 7).set("12");
await say(keys.note("ann-lee", 7).get());
await keys.page("https://example.com/ä?x=1", "de").set("a page");
await keys.offer("o1").set({ to: "bob", expires_at: soon });
await keys.ticket("t1").set(7, new Date(soon));
await say(keys.ticket("t1").consume());
await keys.ticket("t2").set(8, soon);
await keys.size("x").set("small");
await say(keys.size("x").get());
await keys.open_().set(true);
await say(keys.open_().get());
await say(keys.visits("2026-02-23").increment());
await say(keys.visits("2026-02-23").increment(4));
await say(keys.visits("2026-02-23").get());
await keys.profile("ann").set({ name: "Ann", visits: 1, cart: { items: [], size: "small" } });
await keys.profile("ann").update({ visits: 2 });
await say(keys.profile("ann").get());
await say(keys.profile("ann").getField("visits"));
await say(keys.words().set({ one: 1, two: 2 }));
await say(keys.words().remove("two"));
await say(keys.words().get());
await say(keys.tags("t").add([3, 4]));
await say(keys.tags("t").has(3));
await say(keys.tags("t").members().then((found) => found.sort()));
await say(keys.ranks().add("ann", 1.5));
await say(keys.ranks().increment("bob", 3));
await say(keys.ranks().range(0, -1, { rev: true }));
await say(keys.ranks().between(-Infinity, 2));
await say(keys.news().append({ items: ["1"], size: "small" }));
await say(keys.news().append({ items: ["2"], size: "small" }));
await say(keys.news().append({ items: ["3"], size: "small" }));
await say(keys.news().items());
await keys.log().append({ items: ["x"], size: "small" });
await say(keys.log().latest(1).then((found) => found.map((one) => one.item)));
await say(keys.bell("1").publish({ items: [], size: "small" }));
await keys.session("ann", "s1").set("phone");
await keys.session("ann", "s2").set("laptop");
await say(keys.session("ann", "s1").add("tablet"));
await say(keys.session("ann", "s1").replace("tablet"));
await say(keys.seen("s2", "ann").increment());
await say(keys.session("ann", "s2").delete());
await say(keys.sessions("ann").members());
await keys.item(7).set({ made_at: 1771804800 });
await keys.item(8).set({ made_at: 5 });
await say(keys.item(8).delete());
await say(keys.newest().range());
await keys.task("t").set("x");
await say(keys.task("t").consume());
await say(keys.due().count());
await refused(redis.set("shop:cart:eve", { items: [], size: "small" }));
await refused(redis.set("shop:cart:eve", { items: 7 }, { ex: 60 }));
await refused(redis.hset("shop:cart:eve", { items: 1 }));
await refused(redis.set("shop:basket:eve", "x"));
await refused(redis.sadd("shop:tags:new", 1));
console.log(JSON.stringify(said));
"""

MISUSE = """
import { Redis } from "@upstash/redis";
import { createShopKeys } from "./keys.js";
const keys = createShopKeys(Redis.fromEnv());
// @ts-expect-error a field of the model is missing
await keys.cart("ann").set({ size: "small" });
// @ts-expect-error not one of the words
await keys.size("x").set("huge");
// @ts-expect-error a placeholder is missing
await keys.note("ann").get();
// @ts-expect-error a set has no such verb
await keys.tags("t").increment();
// @ts-expect-error the family holds bytes
await keys.photo().get();
// @ts-expect-error a field of another type
await keys.profile("ann").update({ visits: "many" });
const cart: { items: string[] } | null = await keys.cart("ann").get();
console.log(cart);
"""

OPTIONS = (
    *("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noUnusedLocals"),
    *("--noUnusedParameters", "--noImplicitOverride", "--target", "es2022", "--module", "nodenext"),
)


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The folder with the compiled client and the scripts that use it, beside the packages."""
    node, packages = servers.node_with("upstash_clients")
    folder = packages / "typed_client"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{ "type": "module" }')
    for name, text in {"keys": upstash_client([ShopKeys]), "use": USE, "misuse": MISUSE}.items():
        (folder / f"{name}.ts").write_text(text)
    files = [str(folder / f"{name}.ts") for name in ("keys", "use", "misuse")]
    done = subprocess.run(
        [node, "node_modules/typescript/bin/tsc", *OPTIONS, *files],
        cwd=packages,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == ""
    return folder


@asynccontextmanager
async def gateway_to(store: Store, keyspace: Keyspace) -> AsyncIterator[tuple[str, str]]:
    """The URL of a gateway with an enforced schema, and a token."""
    async with connect("memory://") as own:
        keys = GatewayKeys(store, gateway=own)
        token = (await GatewayTokens(keys).create("a test", "write")).token
        app: Any = GatewayApp(GuardedStore(store, WriteGuard([keyspace])), keys)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", token
            finally:
                server.should_exit = True
                await serving


async def run_node(command: list[str], folder: Path, environment: dict[str, str]) -> Any:
    """The JSON that a script prints, while this event loop goes on."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
    )
    out, err = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.matrix
@pytest.mark.parametrize("parsed", ["yes", "no"])
async def test_what_typescript_writes_is_what_python_reads(compiled: Path, parsed: str) -> None:
    node, _ = servers.node_with("upstash_clients")
    async with connect("memory://") as store:
        keys = ShopKeys(store)
        soon = await keys.cart("x").clock() + 3 * DAY_MS
        async with gateway_to(store, keys) as (url, token):
            environment = {"URL": url, "TOKEN": token, "SOON": str(soon), "PARSED": parsed}
            said = await run_node([node, str(compiled / "use.js")], compiled, environment)
        assert said == [
            *(None, {"items": ["a", "b"], "size": "large"}, False, True, "12", 7, "small", True, 1, 5, 5),
            {"name": "Ann", "visits": 2, "cart": {"items": [], "size": "small"}},
            *(2, 2, 1, {"one": 1}, 2, True, [3, 4], True, 3),
            [{"member": "bob", "score": 3}, {"member": "ann", "score": 1.5}],
            [{"member": "ann", "score": 1.5}],
            *(1, 2, 3),
            [{"items": ["2"], "size": "small"}, {"items": ["3"], "size": "small"}],
            *([{"items": ["x"], "size": "small"}], 0),
            *(False, True, 1, True, ["s1"], True, [{"member": 7, "score": 1771804800000}], "x", 0),
            *("no-deadline", "unreadable", "wrong-kind", "unknown-key", "no-deadline"),
        ]
        assert await keys.cart("ann:{1}").get() == Cart(items=["c"])
        assert await keys.note("ann-lee", 7).get() == "12"
        assert await keys.page(url="https://example.com/ä?x=1", lang="de").get() == "a page"
        assert await keys.offer("o1").get() == Offer(to="bob", expires_at=soon)
        assert await keys.ticket("t2").get() == 8
        assert await keys.size(default="x").get() == Size.SMALL
        assert await keys.profile("ann").get() == Profile(name="Ann", visits=2, cart=Cart(items=[]))
        assert (await examine([keys])).found == []
