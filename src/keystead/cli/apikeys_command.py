"""`keystead apikeys`: issue, list and revoke API keys of the Sessions API."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from keystead.cli.flags import Command, CommandGroup
from keystead.cli.formatting import print_issued, print_json
from keystead.cli.keyspace_arguments import Json, Stores, check_roles, open_keyspaces, open_stores, run
from keystead.cli.terminal_language import say
from keystead.kits.sessiondata import SessionDataKeys
from keystead.parts.apikeys import ApiKeys, id_of
from keystead.schema.times import moment

_security = logging.getLogger("keystead.security")

apikeys = typer.Typer(
    name="apikeys", cls=CommandGroup, no_args_is_help=True, help="Issue, list and revoke API keys of the Sessions API."
)


@apikeys.command("issue", cls=Command)
def issue_key(
    user: Annotated[int, typer.Argument(metavar="USER", help="The numeric id of the user that the key acts for.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A description of the key.")],
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Create an API key for a user. It is shown once: the store has only its digest.

    [bold]Examples[/bold]

      keystead apikeys issue 42 "nightly import"
    """

    async def work() -> int:
        # Unlike `_open_keys`, this may create the database: the server may not have started yet.
        check_roles(store, [SessionDataKeys])
        async with open_stores(store, [SessionDataKeys]) as stores:
            others: dict[str, Any] = {role: one for role, one in stores.items() if role != "default"}
            issued = await _part(SessionDataKeys(stores["default"], **others)).issue(user, name)
        _security.info("API key issued by an operator", extra={"event": "apikey-issued", "id": issued.id})
        print_issued(issued, as_json, "keystead apikeys revoke")
        return 0

    run(work)


@apikeys.command("list", cls=Command)
def list_keys(store: Stores = None, as_json: Json = False) -> None:
    """List API keys with id, user, creation time and description. No secret is shown.

    [bold]Examples[/bold]

      keystead apikeys list --store redis://localhost:6379/0
    """

    async def work() -> int:
        async with _open_keys(store) as part:
            found = await part.list()
        if as_json:
            print_json([asdict(one) for one in found])
        elif not found:
            typer.echo(say("there are no API keys"))
        else:
            for one in found:
                typer.echo(
                    say(
                        "{id}  user {user_id}  since {moment} UTC  {name}",
                        id=one.id,
                        user_id=one.user_id,
                        moment=f"{moment(one.made_ms):%Y-%m-%d %H:%M}",
                        name=one.name,
                    )
                )
        return 0

    run(work)


@apikeys.command("revoke", cls=Command)
def revoke_key(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="The id of the key, from `keystead apikeys list`, or the whole key."),
    ],
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Revoke an API key immediately and for good. The exit code is 1 if there is no such key.

    [bold]Examples[/bold]

      keystead apikeys revoke 0123456789abcdef
    """

    async def work() -> int:
        key_id = id_of(id)  # a leaked key may be pasted whole; it must not reach the log
        async with _open_keys(store) as part:
            revoked = await part.revoke(key_id)
        if revoked:
            _security.info("API key revoked by an operator", extra={"event": "apikey-revoked", "id": key_id})
        if as_json:
            print_json({"revoked": revoked})
        else:
            typer.echo(
                say("revoked") if revoked else say("there is no such API key; `keystead apikeys list` shows them")
            )
        return 0 if revoked else 1

    run(work)


def _part(keys: SessionDataKeys) -> ApiKeys:
    return ApiKeys(keys.api_key, keys.api_keys())


@asynccontextmanager
async def _open_keys(store: Sequence[str] | None) -> AsyncIterator[ApiKeys]:
    async with open_keyspaces([SessionDataKeys], store) as [keys]:
        if not isinstance(keys, SessionDataKeys):  # pragma: no cover - open_keyspaces() returns the requested classes
            raise AssertionError
        yield _part(keys)
