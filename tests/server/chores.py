"""A small kit for the tests of jobs: one succeeds, one fails, one never ends."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel

from keystead import Keyspace, Value, after
from keystead.kits.kit import Kit, Site
from keystead.parts.schedule import Job, Run


class ChoresKeys(Keyspace):
    """Chores."""

    chore = Value("chore:{id}", str, lifetime=after("1h"), doc="a chore")


class ChoresSettings(BaseModel):
    diary: Path = Path("diary.txt")


class Chores:
    """Each chore writes a line to the diary."""

    def __init__(self, diary: Path) -> None:
        self._diary = diary
        self.open = True

    def _note(self, line: str) -> None:
        assert self.open, "a job runs only while its kit is open"
        with self._diary.open("a") as diary:
            diary.write(f"{line} {os.getpid()}\n")

    async def sweep(self, run: Run) -> dict[str, int | str]:
        self._note(f"sweep {run.number}")
        return {"swept": 1234, "room": "kitchen"}

    async def drop(self, run: Run) -> None:
        raise RuntimeError("secret-of-a-message")

    async def brood(self, run: Run) -> None:
        self._note(f"brood {run.number}")
        try:
            await asyncio.Event().wait()
        finally:
            self._note(f"interrupted {run.number}")

    def jobs(self) -> Sequence[Job]:
        return (
            Job("chores.sweep", "30 2 * * *", self.sweep, zone="Europe/Berlin", doc="Sweeps the kitchen."),
            Job("chores.drop", "0 0 1 1 *", self.drop),
            Job("chores.brood", "0 0 1 1 *", self.brood),
        )


@asynccontextmanager
async def service(keys: ChoresKeys, settings: ChoresSettings, site: Site) -> AsyncIterator[Chores]:
    chores = Chores(settings.diary)
    yield chores
    chores.open = False


KIT = Kit(
    name="chores",
    doc="What has to be done in a house.",
    keyspace=ChoresKeys,
    settings=ChoresSettings,
    router=APIRouter,
    service=service,
    jobs=Chores.jobs,
)
