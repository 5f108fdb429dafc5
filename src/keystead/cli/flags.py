"""Command classes with readable help: flags show no value, arguments no Python type, and examples stay together."""

import re
import shutil
from collections.abc import Iterator
from copy import copy
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

# The `metavar` of a flag. Typer would print `<bool>`, as if it took a value.
NO_VALUE = ""

HELP_OPTIONS: Final = ("--help", "-h")

_MARGIN: Final = 3  # columns around the help, and one for the backslash of a line that continues
_NARROWEST: Final = 40

# Old names of options: they still work, and a person at a terminal learns the new one.
_RENAMED_OPTIONS: Final = {"--keys": "--keyspace"}


class Command(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.display_type_rich = _no_type  # type: ignore[assignment, method-assign]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._with_new_names(args)))

    def _with_new_names(self, args: list[str]) -> Iterator[str]:
        known = {name for param in self.params for name in param.opts}
        for position, argument in enumerate(args):
            if argument == "--":
                yield from args[position:]
                return
            option, separator, value = argument.partition("=")
            new = _RENAMED_OPTIONS.get(option)
            if new is None or option in known or new not in known:
                yield argument
            else:
                _announce_new_name(option, new)
                yield f"{new}{separator}{value}"

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = copy(self)
        shown.help = lay_out(self.help or "", shutil.get_terminal_size().columns)
        TyperCommand.format_help(shown, ctx, formatter)


class CommandGroup(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.params:
            if param.name in ("install_completion", "show_completion"):
                param.metavar = NO_VALUE
        shown = copy(self)
        shown.help = lay_out(self.help or "", shutil.get_terminal_size().columns)
        TyperGroup.format_help(shown, ctx, formatter)

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


class DefaultCommandGroup(CommandGroup):
    """`keystead gateway …` is `keystead gateway run …`, unless a command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in HELP_OPTIONS):
            self._refuse_near_miss(ctx, args)
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_near_miss(self, ctx: Any, args: list[str]) -> None:
        """`keystead gateway tokn` is a typo, unless a keyspace of this name is here."""
        first = next(iter(args), "")
        near = get_close_matches(first, self.commands, 1)
        if near and not Path(first).is_dir() and not Path(f"{first}.py").is_file():
            ctx.fail(f"No such command {first!r}. Did you mean {near[0]!r}?")


def lay_out(help_text: str, columns: int) -> str:
    """Help whose sentences wrap as the terminal does, and whose examples are lines that can be copied.

    Paragraphs that are indented are examples: they stay together, and a line that is too long continues after a
    backslash.
    """
    paragraphs = [one for one in re.split(r"\n\s*\n", help_text) if one.strip()]
    parts = []
    for is_example, group in groupby(paragraphs, key=lambda one: one.startswith(" ")):
        if is_example:
            parts.append("\n".join(line for one in group for line in _example_lines(one.strip(), columns)))
        else:
            parts += [" ".join(one.split()) for one in group]
    # A heading belongs to the examples below it.
    return "\n\n".join(parts).replace("[/bold]\n\n  ", "[/bold]\n  ")


def _example_lines(example: str, columns: int) -> Iterator[str]:
    room = max(columns - _MARGIN, _NARROWEST)
    line = " "
    # Before an option, so that each line has whole ones.
    for part in re.split(r" (?=--?[a-z])", " ".join(example.split())):
        if line.strip() and len(line) + 1 + len(part) > room:
            yield f"{line} \\"
            line = "     "
        line += f" {part}"
    yield line


def _announce_new_name(old: str, new: str) -> None:
    # Only at a terminal: the output of a script stays as it was.
    if typer.get_text_stream("stderr").isatty():
        typer.echo(f"keystead: {old} is now {new}; the old name still works", err=True)


def _no_type(**_: Any) -> str:
    return ""


def _without_value(option: Any) -> TyperOption | None:
    """Remove the value from `--help`, which Typer creates without a setting for it."""
    if option is not None:
        option.metavar = NO_VALUE
    return option  # type: ignore[no-any-return]
