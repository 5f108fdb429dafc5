"""A small kit for the tests of kit commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter
from pydantic import BaseModel

from keystead import Counter, Keyspace, never
from keystead.kits.kit import Kit, Site


class HouseholdKeys(Keyspace):
    """Rooms of a house."""

    rooms = Counter("rooms:{name}", lifetime=never("a house keeps its rooms"), doc="how many rooms there are")


class HouseholdSettings(BaseModel):
    most: int = 10


@asynccontextmanager
async def service(keys: HouseholdKeys, settings: HouseholdSettings, site: Site) -> AsyncIterator[HouseholdKeys]:
    yield keys


KIT = Kit(
    name="household",
    doc="A house.",
    keyspace=HouseholdKeys,
    settings=HouseholdSettings,
    router=APIRouter,
    service=service,
    commands="tests.server.household_commands:COMMANDS",
)
