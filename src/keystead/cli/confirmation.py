"""Confirmation prompts before a command writes."""

import sys
from typing import Final

import typer

from keystead.catalogue import message
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.interrupts import PauseSignals
from keystead.cli.terminal_language import say

_REFUSALS: Final = {
    "deleted": message("nothing was deleted"),
    "copied": message("nothing was copied"),
    "ended": message("nothing was ended"),
    "restored": message("nothing was restored"),
}


def refuse_without_terminal(yes: bool, dry_run: bool, done: str = "deleted") -> None:
    """Exit with code 2 if confirmation is needed and there is no terminal."""
    if not yes and not dry_run and not sys.stdin.isatty():
        refusal = say(_REFUSALS[done])
        advice = say("confirmation needs a terminal; add --yes, or --dry-run to see what would happen")
        fail(f"{refusal}: {advice}", USAGE_ERROR)


def confirm(question: str, yes: bool, pause: PauseSignals, refusal: str = "") -> bool:
    """Ask for confirmation, on stderr to keep stdout clean. Ctrl-C exits with code 130 and the `refusal`."""
    if yes:
        return True
    with pause():
        try:
            return typer.confirm(question, err=True)
        except (typer.Abort, KeyboardInterrupt):
            typer.echo(err=True)
            fail(refusal or say(_REFUSALS["deleted"]), 130)
