"""Command classes whose help shows a flag as what it is: a name without a value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

# As the `metavar` of a flag: Typer would write `<bool>` beside it, as if a value could follow.
NO_VALUE = ""


class Command(TyperCommand):
    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


class Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


def _without_value(option: Any) -> TyperOption | None:
    """Typer makes `--help` itself and has no setting for it, so it is changed once made."""
    if option is not None:
        option.metavar = NO_VALUE
    return option  # type: ignore[no-any-return]
