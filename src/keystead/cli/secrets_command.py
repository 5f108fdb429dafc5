"""`keystead secrets`: new keys that encrypt sealed values or sign tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json
from keystead.server.secrets_file import new_seal_key, new_signing_key

secrets = typer.Typer(
    name="secrets", cls=CommandGroup, no_args_is_help=True, help="Create keys that seal secrets or sign tokens."
)


class Algorithm(StrEnum):
    """Signature algorithms."""

    EDDSA = "EdDSA"
    RS256 = "RS256"
    HS256 = "HS256"


_TOML_HELP = "Print it as a line of keystead.secrets.toml instead."
_ALGORITHM_HELP = "EdDSA and RS256 have a public key for verification; HS256 signs and verifies with one secret."


@secrets.command(cls=Command)
def new(
    toml: Annotated[bool, typer.Option("--toml", metavar=NO_VALUE, help=_TOML_HELP)] = False, as_json: Json = False
) -> None:
    """Print a new key that seals secrets, as an environment variable of keystead serve.

    To rotate, append the new key after a comma: the last key seals, and all of them open.

    [bold]Examples[/bold]

      keystead secrets new >> .env

      keystead secrets new --toml >> keystead.secrets.toml
    """
    key = new_seal_key()
    if as_json:
        print_json({"seal_keys": key})
        return
    typer.echo(f'seal_keys = "{key}"' if toml else f"KEYSTEAD_SEAL_KEYS={key}")


@secrets.command(cls=Command)
def signing(
    algorithm: Annotated[
        Algorithm, typer.Option("--algorithm", metavar="EdDSA|RS256|HS256", help=_ALGORITHM_HELP)
    ] = Algorithm.EDDSA,
    as_json: Json = False,
) -> None:
    """Print a new key that signs access tokens, as an entry of a key list: {id}:{algorithm}:{key}.

    To rotate, put the new key before the current one, separated by a comma, until every server has it. Then move it to
    the end, where it signs, and remove the old key when its last token has expired.

    [bold]Examples[/bold]

      keystead secrets signing

      keystead secrets signing --algorithm RS256
    """
    key = new_signing_key(algorithm.value)
    if as_json:
        print_json({"key": key})
    else:
        typer.echo(key)
