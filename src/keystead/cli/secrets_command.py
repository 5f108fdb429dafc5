"""`keystead secrets`: keys that seal what is secret in a store, and keys that sign tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.server.secrets_file import new_seal_key, new_signing_key

secrets = typer.Typer(
    name="secrets", cls=CommandGroup, no_args_is_help=True, help="Make keys to seal secrets and sign with."
)


class Algorithm(StrEnum):
    """What a signing key is for."""

    EDDSA = "EdDSA"
    RS256 = "RS256"
    HS256 = "HS256"


_TOML_HELP = "Print it as a line of keystead.secrets.toml instead."
_ALGORITHM_HELP = "EdDSA and RS256 have a public half that others check tokens with; HS256 is one secret for both."


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


@secrets.command(cls=Command)
def signing(
    algorithm: Annotated[
        Algorithm, typer.Option("--algorithm", metavar="EdDSA|RS256|HS256", help=_ALGORITHM_HELP)
    ] = Algorithm.EDDSA,
) -> None:
    """Print a new key that signs access tokens, as an entry of a list of keys: {id}:{algorithm}:{key}.

    To replace a key, put the new one before the current one, divided by a comma, until every server knows it; then
    move it to the end, where it signs; and take the old one away when its last token has expired.

    [bold]Examples[/bold]

      keystead secrets signing

      keystead secrets signing --algorithm RS256
    """
    typer.echo(new_signing_key(algorithm.value))
