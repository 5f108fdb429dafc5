"""`keystead gateway`: serve a store to clients of Upstash, and manage the tokens of these clients."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, get_args

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import Command, CommandGroup, DefaultCommandGroup
from keystead.cli.formatting import print_issued, print_json
from keystead.cli.keyspace_arguments import (
    Json,
    MoreKeyspaces,
    Stores,
    all_targets,
    check_roles,
    find_family,
    named_keyspaces,
    open_keyspaces,
    open_stores,
    run,
)
from keystead.cli.operator import operator
from keystead.cli.serve_command import run_server, stores_by_role
from keystead.cli.terminal_language import say
from keystead.errors import BadValue
from keystead.gateway.gateway_keys import Access, GatewayKeys, GatewayToken
from keystead.gateway.gateway_tokens import GatewayTokens
from keystead.gateway.permissions import check_limits, patterns_by_name
from keystead.parts.apikeys import id_of
from keystead.schema.family_lookup import name_of
from keystead.schema.times import moment
from keystead.server.settings_sources import CONFIG_VARIABLE

_security = logging.getLogger("keystead.security")

_KEYSPACES_HELP = """Key documents, such as shop.keys:ShopKeys: every write is checked against them, and tokens can be
limited to their families."""
_SCHEMA_HELP = """What happens to a write that does not fit: observe logs and counts it, fix sets the declared lifetime,
enforce refuses it. [dim]\\[default: observe][/dim]"""
_STORE_HELP = """Where the keys live, as for serve; gateway=URL keeps the tokens in a store of their own.
[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""
_KIT = "keystead.gateway:ROOT_KIT"

Url = Annotated[list[str] | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]


gateway = typer.Typer(
    name="gateway", cls=DefaultCommandGroup, help="Serve a store to clients of Upstash, such as @upstash/redis."
)
token = typer.Typer(
    name="token", cls=CommandGroup, no_args_is_help=True, help="Create, list and revoke tokens of the gateway."
)
gateway.add_typer(token)


@gateway.command("run", cls=Command)
def run_gateway(
    keyspaces: Annotated[
        list[str] | None, typer.Argument(metavar="KEYSPACE", help=_KEYSPACES_HELP, show_default=False)
    ] = None,
    more: MoreKeyspaces = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help=_SCHEMA_HELP, show_default=False)] = None,
    store: Url = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on. [dim]\\[default: 127.0.0.1][/dim]")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port to listen on. [dim]\\[default: 8700][/dim]")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The number of worker processes. [dim]\\[default: 1][/dim]")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The settings file. [dim]\\[default: keystead.toml][/dim]")
    ] = None,
) -> None:
    """Serve a store over HTTP, as Upstash does: UPSTASH_REDIS_REST_URL is the address that is printed.

    Clients need a token, from the same store: keystead gateway token create.

    [bold]Examples[/bold]

      keystead gateway token create "web shop" --access write --store sqlite:///app.db

      keystead gateway --store sqlite:///app.db

      keystead gateway shop.keys:ShopKeys --mode enforce --store redis://localhost:6379/0 --port 8080
    """
    if config is not None:
        os.environ[CONFIG_VARIABLE] = config
    targets = all_targets(keyspaces, more)
    names = [f"{one.__module__}:{one.__name__}" for one in named_keyspaces(targets)] if targets else []
    if mode is not None and not names:
        fail(say("--mode needs a key document to check writes against, such as shop.keys:ShopKeys"), USAGE_ERROR)
    table: dict[str, Any] = {"keyspaces": names or None, "schema": mode}
    run_server(
        {
            **stores_by_role(store),
            "host": host,
            "port": port,
            "workers": workers,
            "kits": _KIT,
            "gateway": {name: value for name, value in table.items() if value is not None},
        }
    )


@token.command("create", cls=Command)
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")],
    access: Annotated[
        str,
        typer.Option(
            metavar="ACCESS",
            help="read; write; scripts, which adds EVAL; admin, which passes any command through to Redis or Valkey.",
        ),
    ] = "read",
    family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Limit it to a family, such as ShopKeys.cart. Repeatable.", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Limit it to keys in which a placeholder has this value, such as uid=42. Repeatable.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Limit it to keys that match a pattern. Repeatable.", show_default=False),
    ] = None,
    keyspace: Annotated[
        list[str] | None,
        typer.Option(
            "--keyspace",
            "-k",
            metavar="KEYSPACE",
            help="The key document of --family and --only.",
            show_default=False,
        ),
    ] = None,
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Create a token. It is shown once: the store has only its digest. The gateway must have the same --store.

    [bold]Examples[/bold]

      keystead gateway token create "web shop" --access write --store sqlite:///app.db

      keystead gateway token create "user 42" --access write -k shop.keys:ShopKeys --family cart --only uid=42
    """
    granted = _access(access)
    values = dict(_placeholder_value(one) for one in only or ())
    if family or values:
        if not keyspace:
            fail("--family and --only need the key document: --keyspace shop.keys:ShopKeys", USAGE_ERROR)
        classes = named_keyspaces(keyspace)
        family = [name_of(find_family(one, classes)) for one in family or ()]
        try:
            check_limits(family, values, patterns_by_name(classes))
        except BadValue as error:
            fail(str(error), USAGE_ERROR)

    async def work() -> int:
        # Unlike `_open_tokens`, this may create the database: the gateway may not have started yet.
        check_roles(store, [GatewayKeys])
        async with open_stores(store, [GatewayKeys]) as stores:
            others: dict[str, Any] = {role: one for role, one in stores.items() if role != "default"}
            issued = await GatewayTokens(GatewayKeys(stores["default"], **others)).create(
                name, granted, families=family or (), values=values, keys=keys or (), by=operator().who
            )
        _security.info("gateway token created by an operator", extra={"event": "gateway-token-created"})
        print_issued(issued, as_json, "keystead gateway token revoke")
        if not as_json:
            typer.echo(f"It is for gateways whose store is {stores.get('gateway', stores['default']).url}", err=True)
        return 0

    run(work)


@token.command("list", cls=Command)
def list_tokens(store: Stores = None, as_json: Json = False) -> None:
    """List tokens with id, access, limits, creation time and name. No secret is shown.

    [bold]Examples[/bold]

      keystead gateway token list --store redis://localhost:6379/0
    """

    async def work() -> int:
        async with _open_tokens(store) as part:
            found = await part.records()
        if as_json:
            print_json([{"id": one, **record.model_dump(exclude={"digest"})} for one, record in found])
        elif not found:
            typer.echo(say("there are no tokens; create one with `keystead gateway token create`"))
        for one, record in () if as_json else found:
            since = say("since {moment} UTC", moment=f"{moment(record.made_ms):%Y-%m-%d %H:%M}")
            typer.echo(f"{one}  {record.access}{_limits(record)}  {since}  {record.name}")
        return 0

    run(work)


@token.command("revoke", cls=Command)
def revoke_token(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the token, from the list, or the whole token.")],
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Revoke a token for good. Gateways refuse it within a second. The exit code is 1 if there is no such token.

    [bold]Examples[/bold]

      keystead gateway token revoke 0123456789abcdef
    """

    async def work() -> int:
        token_id = id_of(id)  # a leaked token may be pasted whole; it must not reach the log
        async with _open_tokens(store) as part:
            revoked = await part.revoke_token(token_id, by=operator().who)
        if revoked:
            _security.info("gateway token revoked by an operator", extra={"event": "gateway-token-revoked"})
        if as_json:
            print_json({"revoked": revoked})
        else:
            typer.echo(
                say("revoked") if revoked else say("there is no such token; `keystead gateway token list` shows them")
            )
        return 0 if revoked else 1

    run(work)


def _access(given: str) -> Access:
    found: Access | None = next((one for one in get_args(Access) if one == given), None)
    return found or fail(
        say("--access takes {names}, not {given}", names=", ".join(get_args(Access)), given=repr(given)), USAGE_ERROR
    )


def _placeholder_value(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name.isidentifier() or not value:
        fail(
            say("--only takes the name of a placeholder and its value, such as uid=42, not {given}", given=repr(given)),
            USAGE_ERROR,
        )
    return name, value


def _limits(record: GatewayToken) -> str:
    values = [f"{name}={value}" for name, value in record.values.items()]
    limits = [*record.families, *values, *record.keys]
    return f" ({', '.join(limits)})" if limits else ""


@asynccontextmanager
async def _open_tokens(store: Sequence[str] | None) -> AsyncIterator[GatewayTokens]:
    async with open_keyspaces([GatewayKeys], store) as [keys]:
        if not isinstance(keys, GatewayKeys):  # pragma: no cover - open_keyspaces() returns the requested classes
            raise AssertionError
        yield GatewayTokens(keys)
