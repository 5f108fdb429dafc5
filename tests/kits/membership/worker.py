"""A process with the service of the kit: `python -m … WHAT STORE PROVIDER DATABASE COUNT [TOKEN]`.

It does one thing so many times at once, when it is told to, and prints a line of JSON: what came of each.

    sign-in    somebody signs in
    validate   a session token is asked about
    refresh    a refresh token is used
    tokens     tokens are asked for with a session token
    logout     a session is ended by its token
    entitled   an access token is asked what it may do
    use        a program records one token, under ids that all processes share
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import httpx2

from keystead import connect
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipRefused, MembershipSettings
from keystead.kits.membership.service import Ledger, Patreon
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests.kits.membership.asking import BASE, REDIRECT, RING, table


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def main(what: str, store_url: str, provider_url: str, database_url: str, count: str, token: str = "") -> None:
    site = Site(public_url=BASE, internal_url=BASE, development=True, now_ms=now_ms, render=lambda *_, **__: "")
    settings = MembershipSettings(**table(provider_url))
    async with (
        connect(store_url) as store,
        open_tables(database_url, MEMBERSHIP_TABLES) as tables,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        keys = MembershipKeys(store, seal=RING)
        patreon = Patreon(settings.provider, http, now_ms, development=True)
        members = Members(keys, settings, site, patreon, Ledger(tables))

        async def sign_in() -> str:
            return (await members.sign_in("code-123", REDIRECT)).token

        async def validate() -> str:
            return (await members.validate(token)).membership.plan

        async def refresh() -> str:
            return (await members.token_pairs.refresh(token)).refresh_token

        async def tokens() -> str:
            return (await members.token_pairs.issue(token)).refresh_token

        async def logout() -> str:
            return str(await members.logout(token))

        async def entitled() -> str:
            return (await members.entitled(token)).plan

        numbers = iter(range(int(count)))

        async def use() -> str:
            recorded, _ = await members.programs.record_usage("123", f"e{next(numbers)}", 1)
            return str(recorded.is_new)

        does: dict[str, Callable[[], Awaitable[str]]] = {
            "sign-in": sign_in,
            "validate": validate,
            "refresh": refresh,
            "tokens": tokens,
            "logout": logout,
            "entitled": entitled,
            "use": use,
        }
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found = await asyncio.gather(*(does[what]() for _ in range(int(count))), return_exceptions=True)
        await members.close()
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, MembershipRefused):
            raise one
    print(json.dumps([one.reason if isinstance(one, MembershipRefused) else one for one in found]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
