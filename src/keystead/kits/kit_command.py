"""Commands of a kit, for `keystead NAME …`.

A command is an async function. Its first parameter is the open service of its kit; the others are arguments and
options, annotated for Typer. The function's name, with dashes, is the name of the command; its docstring is the help:

    async def add_room(house: House, name: Annotated[str, typer.Argument(help="What it is called.")]) -> Shown:
        \"\"\"Add a room.\"\"\"
        number = await house.add(name)
        return Shown(f"room {number} was added", {"room": number})

    COMMANDS = (add_room,)  # and in the kit: Kit(…, commands="myapp.commands:COMMANDS")

`--store` and `--json` are added to each. A KeysteadError is printed as one line, with exit code 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Shown:
    """The output of a command.

    text   for people. Terminal control characters are escaped
    data   for programs, with `--json`
    note   for people, on standard error: what to do next
    code   the exit code
    """

    text: str
    data: Any
    note: str = ""
    code: int = 0


KitCommand: TypeAlias = Callable[..., Awaitable[Shown]]
