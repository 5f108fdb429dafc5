"""The `keystead` command."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

import keystead
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.errors import MissingExtra
from keystead.extras import EXTRAS

__all__ = ["main"]

# Each command is a function or a group in `NAME_command.py`.
COMMANDS: Final = (
    "serve",
    "gateway",
    "console",
    "check",
    "doctor",
    "infer",
    "docs",
    "guide",
    "export",
    "show",
    "watch",
    "delete",
    "erase",
    "sessions",
    "apikeys",
    "jobs",
    "audit",
    "secrets",
    "backup",
    "restore",
    "copy",
    "store",
    "tables",
)

app = typer.Typer(
    name="keystead",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


def _add_commands(arguments: Sequence[str]) -> None:
    """Import only the requested command, or all of them for help: imports are slow."""
    first = next(iter(arguments), "")
    if first == "--version":
        return
    if first not in COMMANDS:
        from keystead.cli.kit_commands import kit_groups

        wants_help = not first or first.startswith("-")
        groups = kit_groups(None if wants_help else first)
        for group in groups:
            app.add_typer(group)
        if groups and not wants_help:
            return
    for name in [first] if first in COMMANDS else COMMANDS:
        command: Any = getattr(import_module(f"keystead.cli.{name}_command"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(cls=Command)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"keystead {keystead.__version__}")
        raise typer.Exit


@app.callback()
def _keystead(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar=NO_VALUE, callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Key documents that run.

    Start with [bold]keystead serve[/bold], then open http://127.0.0.1:8700.
    """


def _run(arguments: Sequence[str]) -> None:
    """Run a command. Missing packages are a one-line error that names the extra, not a traceback."""
    try:
        _add_commands(arguments)
        app()
    except MissingExtra as error:
        fail(str(error), USAGE_ERROR)
    except ImportError as error:
        if not (error.name or "").startswith(EXTRAS["server"]):
            raise
        fail('this command needs packages that are not installed: pip install "keystead[server]"', USAGE_ERROR)


def main() -> None:
    """Run the command line: exit code 0, 1 on failure, 2 on a usage error."""
    try:
        _run(sys.argv[1:])
    except typer.Exit as stop:  # only `app()` turns it into an exit code
        sys.exit(stop.exit_code)
