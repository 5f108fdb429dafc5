"""Command classes whose help is for people: a flag is a name without a value, an argument has no type of Python's."""

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

# As the `metavar` of a flag: Typer would write `<bool>` beside it, as if a value could follow.
NO_VALUE = ""


class Command(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.display_type_rich = _nothing  # type: ignore[assignment, method-assign]

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


class CommandGroup(TyperGroup):
    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _without_value(super().get_help_option(ctx))


def _nothing(**_: Any) -> str:
    return ""


def _without_value(option: Any) -> TyperOption | None:
    """Typer makes `--help` itself and has no setting for it, so it is changed once made."""
    if option is not None:
        option.metavar = NO_VALUE
    return option  # type: ignore[no-any-return]
