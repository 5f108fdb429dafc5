"""How a command ends when it cannot go on: one sentence, and the exit code."""

from typing import Final, NoReturn

import typer

FAILED: Final = 1
ASKED_WRONGLY: Final = 2


def leave(sentence: str, code: int = FAILED) -> NoReturn:
    typer.echo(f"keystead: {sentence}", err=True)
    raise typer.Exit(code)
