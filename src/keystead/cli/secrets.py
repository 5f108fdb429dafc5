"""`keystead secrets`: keys that seal what is secret in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from keystead.cli.flags import NO_VALUE, Command, Group
from keystead.server.secrets import new_seal_key

secrets = typer.Typer(name="secrets", cls=Group, no_args_is_help=True, help="Make keys to seal secrets with.")

_TOML_HELP = "Print it as a line of keystead.secrets.toml instead."


@secrets.command(cls=Command)
def new(toml: Annotated[bool, typer.Option("--toml", metavar=NO_VALUE, help=_TOML_HELP)] = False) -> None:
    """Print a new key that seals secrets, as a line for the environment of keystead serve.

    To replace a key, put the new one behind the old one, divided by a comma: the last one seals, and all of them open.

    [bold]Examples[/bold]

      keystead secrets new >> .env

      keystead secrets new --toml >> keystead.secrets.toml
    """
    key = new_seal_key()
    typer.echo(f'seal_keys = "{key}"' if toml else f"KEYSTEAD_SEAL_KEYS={key}")
