"""`keystead console`: look at the keys of any keyspace in a browser."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import Command, DefaultCommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import (
    Json,
    MoreKeyspaces,
    Stores,
    Targets,
    check_roles,
    keyspaces,
    open_stores,
    run,
    settings_for,
)
from keystead.cli.operator import operator
from keystead.cli.serve_command import run_server, stores_by_role
from keystead.cli.terminal_language import say
from keystead.console.console_access import LINK_LIFETIME, ROLES, ConsoleAccess
from keystead.console.console_keys import ConsoleKeys
from keystead.server.settings_sources import CONFIG_VARIABLE

_STORE_HELP: Final = """Where the keys live, as for serve; console=URL keeps links, sessions and the audit log of the
console in a store of their own. [dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""

console = typer.Typer(
    name="console",
    cls=DefaultCommandGroup,
    help="""Look at keys in a browser, and act on them.

    keystead console myapp.keys:AppKeys --store URL prints a link; keystead console run --help lists all options.""",
)


@console.command("run", cls=Command)
def run_console(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on. [dim]\\[default: 127.0.0.1][/dim]")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port to listen on. [dim]\\[default: 8700][/dim]")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The settings file. [dim]\\[default: keystead.toml][/dim]")
    ] = None,
) -> None:
    """Serve the console for these keyspaces, and print a link that opens it once.

    [bold]Examples[/bold]

      keystead console myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead console kits --store sqlite:///keystead.db --store console=sqlite:///console.db
    """
    if config is not None:
        os.environ[CONFIG_VARIABLE] = config
    names = [f"{one.__module__}:{one.__name__}" for one in keyspaces(targets, more)]
    table: dict[str, Any] = {"keyspaces": names, "on": True, "examine": ""}
    run_server({**stores_by_role(store), "host": host, "port": port, "kits": "console", "console": table})


@console.command("link", cls=Command)
def create_link(
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="viewer reads; operator changes single keys; admin erases people.")
    ] = "viewer",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whom it is for, for the audit log. [dim]\\[default: your account][/dim]"),
    ] = None,
    store: Stores = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where browsers reach the server.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a link that opens the console of a running server once, within an hour.

    [bold]Examples[/bold]

      keystead console link --role operator --name ann --public-url https://example.com
    """
    granted = next((one for one in ROLES if one == role), None)
    if granted is None:
        fail(say("--role takes {names}, not {role}", names=", ".join(ROLES), role=repr(role)), USAGE_ERROR)

    async def work() -> int:
        settings = settings_for(store, **({} if public_url is None else {"public_url": public_url}))
        check_roles(store, [ConsoleKeys])
        async with open_stores(store, [ConsoleKeys]) as stores:
            others: dict[str, Any] = {one: held for one, held in stores.items() if one != "default"}
            act = operator()
            who = act.who if name is None else f"operator:{name}"
            access = ConsoleAccess(ConsoleKeys(stores["default"], **others))
            secret = await access.create_link(who, granted, act.where)
        link = f"{settings.origin}/console/enter#{secret}"
        if as_json:
            print_json({"link": link, "role": granted, "works_for": str(LINK_LIFETIME)})
            return 0
        typer.echo(link)
        typer.echo(say("It works once, within {lifetime}.", lifetime=LINK_LIFETIME), err=True)
        return 0

    run(work)
