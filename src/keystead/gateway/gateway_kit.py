"""The gateway as a kit of `keystead serve`, below `/gateway`, or at the root for `keystead gateway`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from keystead.errors import BadDeclaration
from keystead.gateway.gateway_app import GatewayApp, SchemaMode
from keystead.gateway.gateway_keys import GatewayKeys
from keystead.gateway.rest_requests import RestError
from keystead.kits.kit import Kit, Site
from keystead.kits.setting_types import Words
from keystead.parts.sizes import size_bytes
from keystead.schema import Keyspace

# All methods: the gateway refuses the others in the form that its clients read.
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_NAME: Final = "gateway"


class GatewaySettings(BaseModel):
    """`[gateway]` in keystead.toml, or `KEYSTEAD_GATEWAY__KEYSPACES` in the environment."""

    keyspaces: Words = Field(
        (),
        description="The key documents of the store, such as `shop.keys:ShopKeys`. Writes are checked against them; "
        "tokens can be limited to their families.",
    )
    schema_mode: SchemaMode = Field(
        "observe",
        alias="schema",
        description="What happens to writes that do not fit `keyspaces`. `off`: they pass. `observe`: they pass, and "
        "are logged and counted. `fix`: the declared lifetime is set. `enforce`: they are refused.",
    )
    max_body: Annotated[int, BeforeValidator(size_bytes)] = Field(
        10_000_000, description="The maximum size of a request body, such as `1MB`."
    )


class _Delegated(Response):
    """A response that the gateway writes itself, also to a body that the server finds too large."""

    def __init__(self, app: GatewayApp, prefix: str) -> None:
        super().__init__()
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_body() -> Message:
            try:
                return await receive()
            except HTTPException as error:
                if error.status_code != 413:
                    raise
                raise RestError(413, "ERR max request size exceeded; the body of POST / may be larger") from None

        await self._app({**scope, "root_path": scope.get("root_path", "") + self._prefix}, receive_body, send)


def _router(prefix: str) -> APIRouter:
    async def respond(request: Request) -> Response:
        return _Delegated(request.app.state.kits[_NAME], prefix)

    routes = APIRouter()
    # The first three have no parameters, so the server finds them without a search.
    for path in (prefix or "/", f"{prefix}/pipeline", f"{prefix}/multi-exec", prefix + "/{command:path}"):
        routes.add_api_route(path, respond, methods=_METHODS, include_in_schema=False)
    return routes


@asynccontextmanager
async def _open_gateway(keys: GatewayKeys, settings: GatewaySettings, site: Site) -> AsyncIterator[GatewayApp]:
    yield GatewayApp(
        keys.store_of("default"),
        keys,
        keyspaces=load_keyspaces(settings.keyspaces),
        schema=settings.schema_mode,
        count=lambda code: site.count(_NAME, code, settings.schema_mode),
        max_body_bytes=settings.max_body,
    )


def load_keyspaces(names: Sequence[str], setting: str = "gateway.keyspaces") -> list[type[Keyspace]]:
    """The keyspaces of these names, `shop.keys:ShopKeys`. Raises BadDeclaration, which names the setting."""
    found = []
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            one = getattr(import_module(module), attribute, None) if attribute else None
        except ImportError as error:
            raise BadDeclaration(f"{setting}: {name!r} cannot be imported ({error})") from None
        if not isinstance(one, type) or not issubclass(one, Keyspace):
            raise BadDeclaration(f"{setting}: {name!r} is not a keyspace; write shop.keys:ShopKeys")
        found.append(one)
    return found


def _bodies(prefix: str, settings: GatewaySettings) -> dict[str, int]:
    # The gateway holds its own limit there, after it has checked the token, and refuses in the form of its clients.
    return dict.fromkeys((prefix or "/", f"{prefix}/", f"{prefix}/pipeline", f"{prefix}/multi-exec"), sys.maxsize)


def gateway_kit(prefix: str) -> Kit:
    """The kit with its routes below this path."""
    router: Callable[[], APIRouter] = partial(_router, prefix)
    bodies: Callable[[Any], dict[str, int]] = partial(_bodies, prefix)
    return Kit(
        name=_NAME,
        doc="Serves the store to clients of Upstash, such as @upstash/redis.",
        keyspace=GatewayKeys,
        settings=GatewaySettings,
        router=router,
        service=_open_gateway,
        bodies=bodies,
        streams=(f"{prefix}/subscribe/",),
        stop=GatewayApp.stop,
    )


KIT: Final = gateway_kit("/gateway")
ROOT_KIT: Final = gateway_kit("")
