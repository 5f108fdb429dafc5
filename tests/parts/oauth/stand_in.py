"""A scripted provider that misbehaves, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from keystead.parts.oauth import IdentityFields, Provider
from tests.listening import listening, port_of


def answer(body: object, status: int = 200, headers: str = "") -> bytes:
    """An HTTP answer; bytes are sent as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Status\r\ncontent-length: {len(content)}\r\nconnection: close\r\n{headers}\r\n"
    return head.encode() + content


@cache
def _first_key() -> RSAKey:
    """The shared key of all stand-ins, because creating one is slow."""
    return RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}, auto_kid=False)


class StandIn:
    """Responds to each path with the bytes in `answers`, and records requests.

    An unknown path gets no response: the connection stays open and silent.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: dict[str, bytes | Callable[[], bytes]] = {}
        self.asked: list[tuple[str, str]] = []  # path, and all that was sent
        self._gates: dict[str, asyncio.Event] = {}
        self.stops_listening: Callable[[], None] = lambda: None
        self._was_asked = asyncio.Condition()
        self.key = _first_key()

    def count(self, path: str) -> int:
        return sum(1 for asked, _ in self.asked if asked == path)

    async def note(self, path: str, sent: str) -> None:
        async with self._was_asked:
            self.asked.append((path, sent))
            self._was_asked.notify_all()

    async def until_asked(self, path: str, times: int) -> None:
        async with asyncio.timeout(60), self._was_asked:
            await self._was_asked.wait_for(lambda: self.count(path) >= times)

    def holds(self, path: str) -> Callable[[], None]:
        """Block a path until the returned function is called."""
        gate = self._gates[path] = asyncio.Event()
        return gate.set

    async def passed(self, path: str) -> None:
        if path in self._gates:
            await self._gates[path].wait()

    def lets_go(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def provider(self, **settings: Any) -> Provider:
        """It, as plain OAuth 2."""
        return Provider(
            name="stand-in",
            client_id="keystead",
            scope="identify",
            authorize_url=f"{self.url}/authorize",
            token_url=f"{self.url}/token",
            userinfo_url=f"{self.url}/me",
            identity=IdentityFields(id="id", name=("global_name", "username"), avatar="avatar"),
        ).configured(**settings)

    def with_issuer(self) -> Provider:
        """It, as OpenID Connect, with its key published."""
        self.publish(self.key)
        return self.provider(
            issuer=self.url, jwks_uri=f"{self.url}/jwks", userinfo_url=None, scope="openid", identity=IdentityFields()
        )

    def publish(self, *keys: RSAKey) -> None:
        self.answers["/jwks"] = answer({"keys": [key.as_dict(private=False) for key in keys]})

    def signed(self, claims: dict[str, Any], key: RSAKey | None = None, **header: Any) -> str:
        """An ID token with these claims, signed by our key, or another one."""
        signing = key or self.key
        return jwt.encode({"alg": "RS256", "kid": signing.kid, **header}, claims, signing)


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(line.partition(":")[2]) for line in head.splitlines() if line.lower().startswith("content-length:")),
            0,
        )
        body = (await reader.readexactly(length)).decode()
        path = head.split(" ", 2)[1]
        await server.note(path, head + body)
        await server.passed(path)
        scripted = server.answers.get(path.partition("?")[0])
        if scripted is None:
            await reader.read()  # until the client gives up
            return
        writer.write(scripted() if callable(scripted) else scripted)
        await writer.drain()

    async with listening(serve) as opened:
        server = StandIn(port_of(opened))
        server.stops_listening = opened.close
        try:
            yield server
        finally:
            server.lets_go()
