"""Look after a house."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keystead.errors import BadValue
from keystead.kits.kit_command import Shown

if TYPE_CHECKING:
    from tests.server.household import HouseholdKeys


async def add_rooms(
    house: HouseholdKeys,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the rooms are for.")],
    count: Annotated[int, typer.Option(metavar="NUMBER", help="How many.")] = 1,
) -> Shown:
    """Add rooms to the house."""
    if count < 1:
        raise BadValue("a house gets one room at least")
    total = await house.rooms(name).increment(count)
    return Shown(f"{name}: {total}", {"name": name, "rooms": total}, note="Sweep them.")


async def burn(house: HouseholdKeys) -> Shown:
    """Do not."""
    return Shown("no", None, code=1)


COMMANDS = (add_rooms, burn)
