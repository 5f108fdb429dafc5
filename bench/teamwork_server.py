"""`keystead serve` with the teamwork kit, as a process to kill, and the service beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import sysconfig
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from bench.streams import free_port
from keystead import KeyRing, connect
from keystead.kits.kit import Site
from keystead.kits.teamwork import TeamworkKeys, TeamworkSettings, UserSession
from keystead.kits.teamwork.service import TEAMWORK_TABLES, Teamwork, open_teamwork
from keystead.parts.tables import open_tables

SEAL: Final = "bench:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
ISSUER: Final = "http://teamwork.example"  # one for all servers, so that each takes the tokens of the others
TEAM: Final = 3
START_S: Final = 60.0


class TeamworkServer:
    """A server on a free port."""

    def __init__(self, folder: Path, store: str, database: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._settings = {
            "KEYSTEAD_STORE": store,
            "KEYSTEAD_KITS": "keystead.kits.teamwork:KIT",
            "KEYSTEAD_SEAL_KEYS": SEAL,
            "KEYSTEAD_DATABASE": database,
            "KEYSTEAD_LOG_LEVEL": "warning",
            "KEYSTEAD_TEAMWORK__ISSUER": ISSUER,
            "KEYSTEAD_TEAMWORK__LIMITS": '{"events": 0}',
        }
        self._process: Process | None = None

    async def start(self) -> None:
        command = (str(Path(sysconfig.get_path("scripts")) / "keystead"), "serve", "--port", str(self.port))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYSTEAD_")}
        output = self._folder / f"{self.port}.txt"
        with output.open("w") as said:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=self._folder, env={**environment, **self._settings}, stdout=said, stderr=said
            )
        deadline = time.monotonic() + START_S
        while "Keystead is running" not in output.read_text():
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"keystead did not start: {output.read_text()}")
            await asyncio.sleep(0.05)

    @property
    def serving_pid(self) -> int:
        """The worker process, or the started process if it has none."""
        pid = self._running.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else pid

    async def kill(self) -> None:
        """kill -9 of the worker and of its parent, which would replace it."""
        process = self._running
        for pid in (process.pid, self.serving_pid):
            os.kill(pid, signal.SIGKILL)
        await process.wait()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("it was not started")
        return self._process


@asynccontextmanager
async def open_teamwork_service(store_url: str, database: str, port: int) -> AsyncIterator[Teamwork]:
    """The service in this process, on the store and database of such a server."""
    async with connect(store_url) as store, open_tables(database, TEAMWORK_TABLES) as tables:
        keys = TeamworkKeys(store, seal=KeyRing.from_text(SEAL))
        home = f"http://127.0.0.1:{port}"
        site = Site(home, home, True, keys.now_ms, lambda *_, **__: "", tables=tables)
        async with open_teamwork(keys, TeamworkSettings(issuer=ISSUER), site) as teamwork:
            yield teamwork


async def hire(teamwork: Teamwork, users: Iterable[int]) -> None:
    """Make these users members of one team."""
    person = UserSession(name="u", email="u@example.com", role="DEVELOPER", team_id=TEAM, team_role="MEMBER")
    for user in users:
        await teamwork.people.save(user, person)
