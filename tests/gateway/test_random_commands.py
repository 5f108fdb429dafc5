"""Commands that no client means: every answer is an answer, whatever the mode of the schema."""

import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

from keystead import connect
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens
from keystead.gateway.gateway_app import SchemaMode
from keystead.schema.doctor import examine
from keystead.stores.commands import TABLE
from keystead.stores.derived import DERIVED
from tests.gateway.conftest import Client
from tests.gateway.shop_keys import ShopKeys

pytestmark = pytest.mark.matrix

NAMES = [*TABLE, *DERIVED]
KEYS = [
    *("cart:1", "item:1:tea", "offers", "offer:a", "visits:today", "tags:tea", "profile:1", "address:1", "recent:1"),
    *("repairs:tea", "orders", "order:a", "receipt:a", "news:1", "stray", "", "\x00", "cart:9" * 200),
]
ARGUMENTS: list[Any] = [
    *(
        "",
        "0",
        "1",
        "-1",
        "x",
        "city",
        "floor",
        "tea",
        '{"text":"hello"}',
        '{"items":["a"]}',
        "\u3042",
        "\x00",
        "\u0967",
    ),
    *(
        "EX",
        "PX",
        "NX",
        "XX",
        "GET",
        "KEEPTTL",
        "LIMIT",
        "COUNT",
        "MATCH",
        "WITHSCORES",
        "BYSCORE",
        "MAXLEN",
        "REPLACE",
    ),
    *("*", "1-1", "-", "+", "inf", "nan", "(1", "[a", "=", "~", "data", "3600", "1e400", "0x10", 1.5, 10**30, True),
    *("9223372036854775807", "9223372036854775808", "100000000000000", "LEFT", "RIGHT", "BEFORE", "a" * 3000),
]


@pytest.mark.parametrize("mode", ["off", "observe", "fix", "enforce"])
async def test_every_random_command_is_answered(mode: SchemaMode) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    async with AsyncExitStack() as opened:
        store = await opened.enter_async_context(connect("memory://"))
        keys = GatewayKeys(store, gateway=await opened.enter_async_context(connect("memory://")))
        app = GatewayApp(store, keys, keyspaces=[ShopKeys], schema=mode)
        client = Client(app, GatewayTokens(keys), store)
        opened.push_async_callback(client.close)
        await client.login("write")
        for _ in range(1_500):
            commands = [_command(chance) for _ in range(chance.choice((1, 3, 20)))]
            path = chance.choice(("/pipeline", "/multi-exec"))
            answer = await client.request("POST", path, json=commands)
            said = answer.json()
            case = f"seed {seed}: {path} {commands}: {said}"
            if answer.status_code == 400:
                assert (path, list(said)) == ("/multi-exec", ["error"]), case
            else:
                assert (answer.status_code, len(said)) == (200, len(commands)), case
            errors = [one["error"] for one in (said if isinstance(said, list) else [said]) if "error" in one]
            assert not [error for error in errors if "the log of the gateway says why" in error], case
        if mode == "enforce":
            assert (await examine([ShopKeys(store)])).counts == {}, f"seed {seed}"


def _command(chance: random.Random) -> list[Any]:
    name = chance.choice(NAMES)
    more = [chance.choice([*ARGUMENTS, *KEYS[:15]]) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
    return [name, *([chance.choice(KEYS)] if chance.random() < 0.95 else []), *more]
