"""Command classes with readable help: flags show no value, arguments no Python type."""

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

# The `metavar` of a flag. Typer would print `<bool>`, as if it took a value.
NO_VALUE = ""


class Command(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.display_type_rich = _no_type  # type: ignore[assignment, method-assign]

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


class CommandGroup(TyperGroup):
    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


class DefaultCommandGroup(CommandGroup):
    """`keystead gateway …` is `keystead gateway run …`, unless a command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _no_type(**_: Any) -> str:
    return ""


def _without_value(option: Any) -> TyperOption | None:
    """Remove the value from `--help`, which Typer creates without a setting for it."""
    if option is not None:
        option.metavar = NO_VALUE
    return option  # type: ignore[no-any-return]
