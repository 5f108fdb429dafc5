"""A proxy in front of the real provider: it counts, delays or breaks requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2

from tests.listening import listening, port_of
from tests.oidc import OidcProvider

SECRET_FIELDS = ("access_token", "refresh_token", "id_token")


class Front:
    """Passes on what the token endpoint and the userinfo endpoint are asked. The provider behind it is a real one.

    answering  cleared: the provider is asked and has answered, and its answer is held back until this is set
    refusing   every request for tokens is refused with this word
    down       every connection is closed without an answer
    issued     each token that ever went through
    """

    def __init__(self, port: int, issuer: str, http: httpx2.AsyncClient) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answering = asyncio.Event()
        self.answering.set()
        self.reached = asyncio.Event()  # the provider has answered a request for tokens
        self.refusing = ""
        self.down = False
        self.issued: set[str] = set()
        self.grants: list[str] = []  # the kind of each request for tokens
        self.revoked: list[str] = []  # each token that the provider was asked to revoke, and said that it did
        self._told = asyncio.Event()
        self._last: tuple[dict[str, str], bytes] = {}, b""
        self._issuer = issuer
        self._http = http

    def refreshes(self) -> int:
        return self.grants.count("refresh_token")

    async def until_revoked(self, count: int) -> None:
        """Wait until the provider got this many revocation requests."""
        async with asyncio.timeout(20):
            while len(self.revoked) < count:
                self._told.clear()
                await self._told.wait()

    async def replay(self) -> tuple[int, str]:
        """Replay the last token request at the provider; returns the status and the error code."""
        headers, body = self._last
        told = await self._http.post(f"{self._issuer}/token", headers=headers, content=body)
        return told.status_code, told.json().get("error", "")

    async def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        passed = {name: value for name, value in headers.items() if name in ("authorization", "content-type")}
        if path == "/me":
            return await self._userinfo(passed)
        if path == "/token/revocation":
            told = await self._http.post(f"{self._issuer}{path}", headers=passed, content=body)
            if told.is_success:
                self.revoked.append(httpx2.QueryParams(body.decode())["token"])
                self._told.set()
            return told.status_code, told.content
        self.grants.append(httpx2.QueryParams(body.decode())["grant_type"])
        self._last = passed, body
        if self.refusing:
            return 400, json.dumps({"error": self.refusing}).encode()
        told = await self._http.post(f"{self._issuer}/token", headers=passed, content=body)
        if told.is_success:
            self.issued |= {value for name, value in told.json().items() if name in SECRET_FIELDS}
        self.reached.set()
        await self.answering.wait()
        return told.status_code, told.content

    async def _userinfo(self, headers: dict[str, str]) -> tuple[int, bytes]:
        told = await self._http.get(f"{self._issuer}/me", headers=headers)
        facts = told.json()
        # As Discord says who somebody is.
        facts |= {"id": facts.get("sub"), "username": facts.get("name"), "avatar": facts.get("picture")}
        return told.status_code, json.dumps(facts).encode()


@asynccontextmanager
async def front_of(provider: OidcProvider) -> AsyncIterator[Front]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(httpx2.HTTPError):  # the provider went away
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if front.down:
                front.grants.append("unanswered")
                return
            status, content = await front.answer(first.split(" ")[1], headers, body)
            head = f"HTTP/1.1 {status} S\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode() + content)
            await writer.drain()

    async with httpx2.AsyncClient(trust_env=False) as http, listening(serve) as server:
        front = Front(port_of(server), provider.issuer, http)
        try:
            yield front
        finally:
            front.answering.set()
