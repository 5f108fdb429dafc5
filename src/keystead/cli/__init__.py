"""The `keystead` command."""

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import keystead
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import HELP_OPTIONS, NO_VALUE, Command, CommandGroup, translate_typer
from keystead.cli.terminal_language import say
from keystead.errors import MissingExtra
from keystead.extras import EXTRAS
from keystead.kits import COMMANDS as KIT_COMMANDS

__all__ = ["main"]

# Each command is a function or a group in `NAME_command.py`. The text is the first paragraph of its help, so that the
# list of commands can be shown without importing them.
COMMANDS: Final = {
    "init": "Start a project: keys, an application, a test and a README that run as they are.",
    "serve": "Run the server: kits and their API, a start page at /, health checks and metrics.",
    "check": "Find errors in keyspace declarations before a program runs: overlaps, relations, lifetimes, names.",
    "doctor": "Find defects in live data: orphans, dead entries, wrong lifetimes, unreadable values, unknown keys.",
    "infer": "Draft a keys.py from a live store or a key document: patterns, kinds, value models, lifetimes, "
    "relations.",
    "docs": "Print the key document of a keyspace: every key with its value, lifetime, relations and verbs.",
    "guide": "Open the documentation of this version in a browser, without a network. Prints the address.",
    "export": "Export keyspaces as JSON Schema or TypeScript, for programs in other languages.",
    "show": "Show the keys of a store by family: count, size, time to live and samples.",
    "watch": "Show the changes of keys by family, as they happen, whoever makes them. Ctrl-C ends it.",
    "delete": "Delete a key, the keys it owns and the index entries that name it. You confirm the plan first.",
    "erase": "Delete all data of one subject, such as a user, in all keyspaces, stores and tables.",
    "audit": "Show who did what, when and from where: the entries of all audit logs, newest last.",
    "backup": "Save every key of a store in one file: all kinds, with values and exact expiry times.",
    "restore": "Restore the keys of a backup into a store of any type: values and exact expiry times.",
    "copy": "Copy every key of a store to another store of any type: values and exact expiry times.",
    "console": "Look at keys in a browser, and act on them.",
    "gateway": "Serve a store to clients of Upstash, such as @upstash/redis.",
    "sessions": "List and end sessions.",
    "apikeys": "Issue, list and revoke API keys of the Sessions API.",
    "jobs": "List scheduled jobs and their history, and run them now.",
    "secrets": "Create keys that seal secrets or sign tokens.",
    "store": "Maintain a store.",
    "tables": "Maintain the kits' tables.",
}
KIT_SUMMARIES: Final = {
    "membership": "Show members and plan changes, record usage, grant bonus tokens, read crash reports, manage keys "
    "and promotions.",
    "teamwork": "Manage teams: people, invitations, roles, time zones, deadlines, and the Slack log.",
}

_COMPLETE: Final = "_KEYSTEAD_COMPLETE"  # set by the shell when it asks for completions

app = typer.Typer(
    name="keystead",
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": list(HELP_OPTIONS)},
)


def _add_commands(arguments: Sequence[str]) -> None:
    """Import only the requested command, or all of them for help: imports are slow."""
    first = next(iter(arguments), "")
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


def _add_summaries() -> None:
    """Add all commands with the first paragraph of their help, which is all that a list of them needs."""
    own: list[typer.Typer] = []
    if _may_name_kits():
        from keystead.cli.kit_commands import kit_groups

        own = kit_groups(None)
        for group in own:
            app.add_typer(group)
    kits = {} if own else KIT_SUMMARIES
    for name, summary in {**COMMANDS, **kits}.items():
        app.command(name, cls=Command, help=summary)(_summary_only)


def _summary_only() -> None:
    """Stands for a command in a list of commands; `_add_commands` adds the command itself if it is requested."""


def _may_name_kits() -> bool:
    """Whether the settings may name kits of others, whose commands are then listed."""
    if "KEYSTEAD_KITS" in os.environ:
        return True
    try:
        return "kits" in Path(os.environ.get("KEYSTEAD_CONFIG", "keystead.toml")).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _wants_command(arguments: Sequence[str]) -> bool:
    """Whether one command is named, and not only a list of commands is wanted."""
    first = next(iter(arguments), "")
    if first in COMMANDS or first in KIT_COMMANDS:
        return True
    if not first or first.startswith("-") or not _may_name_kits():
        return False
    from keystead.cli.kit_commands import kit_groups

    return bool(kit_groups(first))


def _arguments_to_complete() -> list[str]:
    """The words of the command line that a shell wants to complete, without the last, which may be unfinished."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    try:
        words = shlex.split(line)
    except ValueError:  # an open quotation mark
        words = line.split()
    return words[1:-1] if line and not line[-1].isspace() else words[1:]


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

    Start with [bold]keystead init[/bold] for a project of your own, or with [bold]keystead serve[/bold], then open
    http://127.0.0.1:8700. Every command explains itself with -h.
    """


def _run(arguments: Sequence[str]) -> None:
    """Run a command. Missing packages are a one-line error that names the extra, not a traceback."""
    try:
        if _wants_command(arguments):
            _add_commands(arguments)
        else:
            _add_summaries()
        app()
    except MissingExtra as error:
        fail(str(error), USAGE_ERROR)
    except ImportError as error:
        if not (error.name or "").startswith(EXTRAS["server"]):
            raise
        fail(say('this command needs packages that are not installed: pip install "keystead[server]"'), USAGE_ERROR)


def main() -> None:
    """Run the command line: exit code 0, 1 on failure, 2 on a usage error."""
    translate_typer()
    arguments = _arguments_to_complete() if _COMPLETE in os.environ else sys.argv[1:]
    try:
        _run(arguments)
    except typer.Exit as stop:  # only `app()` turns it into an exit code
        sys.exit(stop.exit_code)
