"""A server process with access tokens, for the tests: `python -m tests.parts.jwt.worker URL KEYS`.

It does what each line of its standard input says, with a token or a user, and answers with a line.
"""

from __future__ import annotations

import asyncio
import sys

from keystead import Keyspace, Value, after, connect, until
from keystead.parts.jwt import Access, AccessTokens, RevokedTokens, SigningKeys


class WorkerKeys(Keyspace):
    """What the processes share."""

    revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a revoked token")
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="when all of a user ended")


async def done(access: AccessTokens, verb: str, what: str) -> str:
    if verb == "issue":
        return access.issue(what).token
    if verb == "end-all":
        await access.revoke_all(what)
        return "ended"
    found = access.check(what)
    if verb == "end":
        assert isinstance(found, Access)
        return str(await access.revoke(found))
    admitted = await access.admitted(what)
    return admitted.sub if isinstance(admitted, Access) else admitted.reason


async def main(url: str, keys: str) -> None:
    async with connect(url) as store:
        own = WorkerKeys(store)
        revoked = RevokedTokens(own.revoked, own.since, may_forget=True)
        access = AccessTokens(SigningKeys.from_text(keys), issuer="i", audience="a", revoked=revoked)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(await done(access, *line.split()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
