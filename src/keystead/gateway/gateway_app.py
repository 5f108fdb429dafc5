"""The gateway as an ASGI application: any store as a server of the Upstash REST API."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreUnavailable
from keystead.gateway.command_runner import CommandRunner
from keystead.gateway.event_stream import stream_messages
from keystead.gateway.gateway_keys import GatewayKeys
from keystead.gateway.gateway_tokens import GatewayTokens, TokenCheck
from keystead.gateway.permissions import Permission, patterns_by_name
from keystead.gateway.rest_replies import RespError, error_text, json_body, json_result, resp2_body, unavailable
from keystead.gateway.rest_requests import RawCommand, RestError, read_command, read_commands, read_path, token_in
from keystead.gateway.schema_reports import SchemaReports
from keystead.schema import Keyspace
from keystead.schema.guard import GuardedStore, WriteGuard
from keystead.stores import Store

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SchemaMode: TypeAlias = Literal["off", "observe", "fix", "enforce"]

MAX_BODY_BYTES: Final = 10 * 1024 * 1024
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT"})
_BATCHES: Final = frozenset({"pipeline", "multi-exec"})
_STREAMS: Final = frozenset({"subscribe"})
_UNAVAILABLE: Final = frozenset({"monitor", "psubscribe"})

_log = logging.getLogger("keystead.gateway")
_security = logging.getLogger("keystead.security")


class _Format(NamedTuple):
    """How the client wants its response."""

    base64: bool
    resp2: bool


class GatewayApp:
    """Serves a store to Upstash clients: `POST /`, `/pipeline`, `/multi-exec`, `/subscribe/…`, and commands as paths.

    store      where the commands run; it must be open
    keys       where the tokens are
    keyspaces  the key documents of the store. Tokens may be limited to their families
    schema     what happens to writes that do not fit the key documents: `off`, they pass; `observe`, they pass and are
               counted; `fix`, the declared lifetime is set; `enforce`, they are refused
    count      gets the code of each finding, for metrics
    """

    def __init__(
        self,
        store: Store,
        keys: GatewayKeys,
        *,
        keyspaces: Sequence[type[Keyspace]] = (),
        schema: SchemaMode = "off",
        max_body_bytes: int = MAX_BODY_BYTES,
        count: Callable[[str], None] = lambda code: None,
    ) -> None:
        families = patterns_by_name(keyspaces)
        self.reports = SchemaReports(count)
        self._store = store
        self._runner = CommandRunner(store)
        if keyspaces and schema != "off":
            guard = WriteGuard([one(store, needs_seal=False) for one in keyspaces], schema, self.reports)
            engine = None if schema == "enforce" else store
            self._runner = CommandRunner(GuardedStore(store, guard), engine=engine)
        self._tokens = TokenCheck(GatewayTokens(keys), lambda token_id, token: Permission(token_id, token, families))
        self._max_body_bytes = max_body_bytes
        # Opaque to clients, which send it back with their next request. Reads here see every acknowledged write anyway.
        self._sync_token = secrets.token_urlsafe(12).encode()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the streams of subscribers, so that the server can stop."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._respond(scope, receive, send)
        except RestError as error:
            await self._send_json(send, error.status, {"error": error.text})
        except RespError as error:
            await self._send_json(send, 400, {"error": error_text(error)})
        except StoreUnavailable as error:
            _log.warning("gateway: %s", error)
            await self._send_json(send, 503, {"error": error_text(error)})
        except CommandError as error:
            await self._send_json(send, 400, {"error": error_text(error)})
        except KeysteadError as error:
            _log.error("gateway: %s", error)
            await self._send_json(send, 500, {"error": error_text(error)})

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in _METHODS:
            raise RestError(405, "ERR only HEAD, GET, POST and PUT are allowed")
        headers = _headers_of(scope)
        permission = await self._authenticate(scope, headers)
        body = await self._read_body(headers, receive)
        segments = _segments(scope)
        first = segments[0].decode("latin-1").lower() if segments else ""
        if first in _STREAMS and len(segments) > 1:
            token = _token_of(scope, headers)

            async def is_allowed() -> bool:
                return await self._tokens.permission(token) is not None

            await stream_messages(self._store, segments[1:], permission, is_allowed, self._stopping, receive, send)
            return
        if first in _UNAVAILABLE:
            raise unavailable(first.upper())
        form = _format_of(headers)
        if first in _BATCHES:
            if len(segments) > 1:
                raise RestError(404, f"ERR there is nothing below /{first}")
            await self._respond_batch(first, read_commands(body), permission, form, send)
            return
        command = read_path(segments, scope.get("query_string", b""), body) if segments else read_command(body)
        [reply] = await self._runner.run([command], permission)
        status = 503 if isinstance(reply, StoreUnavailable) else 400 if isinstance(reply, Exception) else 200
        if form.resp2:
            await self._send(send, status, resp2_body([reply]), b"application/octet-stream")
        else:
            await self._send_json(send, status, json_result(reply, form.base64))

    async def _respond_batch(
        self, first: str, commands: list[RawCommand], permission: Permission, form: _Format, send: Send
    ) -> None:
        if first == "multi-exec":
            replies = await self._runner.run_atomically(commands, permission)
        else:
            replies = await self._runner.run(commands, permission)
            if form.resp2:
                await self._send(send, 200, resp2_body(replies), b"application/octet-stream")
                return
        await self._send_json(send, 200, [json_result(reply, form.base64) for reply in replies])

    async def _authenticate(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Permission:
        found = _token_of(scope, headers)
        if not found:
            raise RestError(401, "WRONGPASS invalid or missing auth token")
        permission = await self._tokens.permission(found)
        if permission is None:
            client = scope.get("client") or ("", 0)
            _security.warning(
                "a token of the gateway was refused", extra={"event": "gateway-token-refused", "client": client[0]}
            )
            raise RestError(401, "WRONGPASS invalid or missing auth token")
        return permission

    async def _read_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._max_body_bytes:
            raise self._too_large(int(announced[:20]))
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RestError(400, "ERR the client closed the connection")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body_bytes:
                raise self._too_large(size)
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self, size: int) -> RestError:
        return RestError(
            413, f"ERR max request size exceeded. Limit: {self._max_body_bytes} bytes, Actual: {size} bytes"
        )

    async def _send_json(self, send: Send, status: int, content: Any) -> None:
        await self._send(send, status, json_body(content), b"application/json")

    async def _send(self, send: Send, status: int, body: bytes, content_type: bytes) -> None:
        headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"upstash-sync-token", self._sync_token),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Raises RestError for two tokens: a proxy may have checked the other one."""
    if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
        raise RestError(400, "ERR the request has more than one authorization header")
    return dict(scope["headers"])


def _token_of(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"authorization", b"").decode("latin-1").strip()
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else token_in(scope.get("query_string", b"")) or ""


def _segments(scope: Scope) -> list[bytes]:
    """The path below the mount point, split before it is decoded: an argument may contain an encoded slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode()).strip(b"/")
    return path.split(b"/") if path else []


def _format_of(headers: Mapping[bytes, bytes]) -> _Format:
    form = headers.get(b"upstash-response-format", b"json").lower()
    base64 = headers.get(b"upstash-encoding", b"").lower() == b"base64"
    if form not in (b"json", b"resp2"):
        raise RestError(400, "ERR the response format must be json or resp2")
    if form == b"resp2" and base64:
        raise RestError(400, "ERR the response format resp2 has no base64 encoding")
    return _Format(base64, form == b"resp2")
