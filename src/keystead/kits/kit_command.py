"""Commands that a kit brings to `keystead NAME …`: functions of its open service, and what they have to say.

A command is an async function. Its first parameter is the open service of its kit; the others are arguments and
options, annotated as Typer reads them. Its name is the function's, with dashes, and its help is the docstring:

    async def add_room(house: House, name: Annotated[str, typer.Argument(help="What it is called.")]) -> Shown:
        \"\"\"Add a room.\"\"\"
        number = await house.add(name)
        return Shown(f"room {number} was added", {"room": number})

    COMMANDS = (add_room,)  # and in the kit: Kit(…, commands="myapp.commands:COMMANDS")

`--store` and `--json` are added to each. A KeysteadError is one sentence and exit code 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Shown:
    """What a command says when it has ended.

    text   for people: lines. What a terminal would obey is written out.
    data   for programs, with `--json`
    note   for people only, on the standard error: what to do next
    code   the exit code
    """

    text: str
    data: Any
    note: str = ""
    code: int = 0


KitCommand: TypeAlias = Callable[..., Awaitable[Shown]]
