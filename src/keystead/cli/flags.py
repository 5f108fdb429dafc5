"""Command classes with readable help: flags show no value, arguments no Python type, and examples stay together.

Help is translated when it is shown. Paragraphs and the help of each option are messages; examples are not.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from keystead.catalogue import Catalogue, Speaker, message
from keystead.cli.terminal_language import say, speaker
from keystead.cli.wide_letters import wrap_wide_letters

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
        with _translated_errors(ctx):
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

    def get_usage(self, ctx: Any) -> str:
        return _translate_usage(super().get_usage(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = _translated(self)
        shown.help = lay_out(shown.help or "", shutil.get_terminal_size().columns)
        TyperCommand.format_help(shown, ctx, formatter)


class CommandGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _translated_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _translated_errors(ctx):
            return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.params:
            if param.name in ("install_completion", "show_completion"):
                param.metavar = NO_VALUE
        shown = _translated(self)
        shown.commands = {name: _translated(one) for name, one in self.commands.items()}
        shown.help = lay_out(shown.help or "", shutil.get_terminal_size().columns)
        TyperGroup.format_help(shown, ctx, formatter)

    def get_usage(self, ctx: Any) -> str:
        return _translate_usage(super().get_usage(ctx))

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
            ctx.fail(say("No such command {name}. Did you mean {near}?", name=repr(first), near=repr(near[0])))


# Texts of Typer's help, by the name that it has for them. The heading of an error is one, too.
_TYPER_TEXTS: Final = {
    "ARGUMENTS_PANEL_TITLE": message("Arguments"),
    "OPTIONS_PANEL_TITLE": message("Options"),
    "COMMANDS_PANEL_TITLE": message("Commands"),
    "ERRORS_PANEL_TITLE": message("Error"),
    "ABORTED_TEXT": message("Aborted."),
    "DEFAULT_STRING": message("[default: {}]"),
    "REQUIRED_LONG_STRING": message("[required]"),
    "RICH_HELP": message("Try [blue]'{command_path} {help_option}'[/] for help."),
}
# The usual errors of Typer, as they are shown.
_TYPER_ERRORS: Final = {
    r"No such command (?P<name>'.*?')\.": message("No such command {name}."),
    r"No such command (?P<name>'.*?')\. Did you mean (?P<near>.*)\?": message(
        "No such command {name}. Did you mean {near}?"
    ),
    r"No such option: (?P<name>\S+)": message("No such option {name}."),
    r"No such option: (?P<name>\S+) (?:\(Possible options: |Did you mean )(?P<near>.*?)[)?]": message(
        "No such option {name}. Did you mean {near}?"
    ),
    r"Missing (?:argument|option|parameter) (?P<name>.*?)\.": message("{name} is missing."),
    r"Invalid value for (?P<name>.*?): (?P<why>.*)": message("Invalid value for {name}: {why}"),
    r"Got unexpected extra argument\(?s?\)? \((?P<names>.*)\)": message("Too many arguments: {names}"),
    r"Option (?P<name>'.*?') requires an argument\.": message("{name} needs a value."),
    r"Option (?P<name>'.*?') does not take a value\.": message("{name} takes no value."),
}
_USAGE: Final = message("Usage:")
_HELP_OF_HELP: Final = message("Show this message and exit.")


def translate_typer() -> None:
    """Give Typer its own texts in the language of the terminal."""
    own = speaker()
    if own.language != "en":
        from typer import rich_utils

        wrap_wide_letters()
        for name, text in _TYPER_TEXTS.items():
            setattr(rich_utils, name, own(text))


@contextmanager
def _translated_errors(ctx: Any) -> Iterator[None]:
    """Usage errors of Typer in the language of the terminal, as far as they are known."""
    try:
        yield
    except Exception as error:
        shown = getattr(error, "format_message", str)() if speaker().language != "en" else ""
        for pattern, text in _TYPER_ERRORS.items() if shown else ():
            if found := re.fullmatch(pattern, shown, re.DOTALL):
                ctx.fail(say(text, **found.groupdict()))
        raise


def help_texts(command: Any) -> Iterator[str]:
    """The messages in the help of a command."""
    yield from filter(_is_message, _paragraphs(command.help))
    yield from (_help_of(one) for one in command.params if _help_of(one))


def file_of(command: Any) -> Path:
    """The file that a command is written in. Its folder may have a catalogue with the help."""
    return Path(str(sys.modules[getattr(command.callback, "__module__", __name__)].__file__))


def _translated(command: Any) -> Any:
    own = speaker(Catalogue(file_of(command).parent))
    if own.language == "en":
        return copy(command)
    shown = copy(command)
    shown.help = "\n\n".join(_translate_paragraph(own, one) for one in _paragraphs(command.help))
    shown.params = [_translated_param(own, one) for one in command.params]
    return shown


def _translated_param(own: Speaker, param: Any) -> Any:
    shown = copy(param)
    if _help_of(param):
        shown.help = own(_help_of(param))
    if isinstance(param, TyperArgument):
        shown.display_type_rich = _no_type  # as that of the original, which `copy` would leave bound to it
    return shown


def _paragraphs(help_text: str | None) -> list[str]:
    """Paragraphs on one line each; examples are still indented."""
    found = [one for one in re.split(r"\n\s*\n", help_text or "") if one.strip()]
    return [one if one.startswith(" ") else " ".join(one.split()) for one in found]


def _help_of(param: Any) -> str:
    return " ".join((getattr(param, "help", None) or "").split())


def _is_message(paragraph: str) -> bool:
    return not paragraph.startswith(" ")


def _translate_paragraph(own: Speaker, paragraph: str) -> str:
    return own(paragraph) if _is_message(paragraph) else paragraph


def _translate_usage(usage: str) -> str:
    return usage.replace("Usage:", say(_USAGE), 1)


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
        typer.echo(f"keystead: {say('{old} is now {new}; the old name still works', old=old, new=new)}", err=True)


def _no_type(**_: Any) -> str:
    return ""


def _without_value(option: Any) -> TyperOption | None:
    """Remove the value from `--help`, which Typer creates without a setting for it."""
    if option is not None:
        option.metavar = NO_VALUE
        option.help = say(_HELP_OF_HELP)
    return option  # type: ignore[no-any-return]
