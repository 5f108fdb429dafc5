"""Ending a command early: a one-line error and an exit code."""

from typing import Final, NoReturn

import typer

FAILED: Final = 1
USAGE_ERROR: Final = 2


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    typer.echo(f"keystead: {sentence}", err=True)
    raise typer.Exit(code)
