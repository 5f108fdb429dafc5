"""Confirmation prompts before a command writes."""

import sys

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.interrupts import PauseSignals


def refuse_without_terminal(yes: bool, dry_run: bool, done: str = "deleted") -> None:
    """Exit with code 2 if confirmation is needed and there is no terminal."""
    if not yes and not dry_run and not sys.stdin.isatty():
        advice = f"add --yes, or --dry-run to see what would be {done}"
        fail(f"nothing was {done}: confirmation needs a terminal; {advice}", USAGE_ERROR)


def confirm(question: str, yes: bool, pause: PauseSignals, refusal: str = "nothing was deleted") -> bool:
    """Ask for confirmation, on stderr to keep stdout clean. Ctrl-C exits with code 130 and the `refusal`."""
    if yes:
        return True
    with pause():
        try:
            return typer.confirm(question, err=True)
        except (typer.Abort, KeyboardInterrupt):
            typer.echo(err=True)
            fail(refusal, 130)
