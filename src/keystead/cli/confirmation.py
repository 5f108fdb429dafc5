"""How a command asks before it writes."""

import sys

import typer

from keystead.cli.exit import USAGE_ERROR, leave
from keystead.cli.interrupts import Paused


def refuse_without_terminal(yes: bool, dry_run: bool) -> None:
    """Leave with exit code 2 if there is no terminal to ask on."""
    if not yes and not dry_run and not sys.stdin.isatty():
        leave(
            "nothing was deleted: there is no terminal to ask on; add --yes, or --dry-run to see what would be deleted",
            USAGE_ERROR,
        )


def confirmed(question: str, yes: bool, paused: Paused, nothing: str = "nothing was deleted") -> bool:
    """Ask for confirmation, on stderr to keep stdout clean. Ctrl-C means no."""
    if yes:
        return True
    with paused():
        try:
            return typer.confirm(question, err=True)
        except (typer.Abort, KeyboardInterrupt):
            typer.echo(err=True)
            leave(nothing, 130)
