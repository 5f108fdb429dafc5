"""A user program for the tests of commands that work on a store."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from keystead import Store, connect
from tests import forking
from tests.serving import environment

SOURCE = '''
from pydantic import BaseModel
from keystead import Counter, Keyspace, Sealed, Set, Value, after, never

class Session(BaseModel):
    uid: str

class Account(BaseModel):
    name: str
    secret: Sealed[str]

class AppKeys(Keyspace):
    """Users and what they have."""

    sessions = Set("user:{uid}:sessions", str, lifetime=never("emptied with its user"), member_of="user:{uid}", doc="s")
    session = Value(
        "sess:{sid}", Session, lifetime=after("30d"), listed_in=sessions, owns="lock", member_of="user:{uid}", doc="s"
    )
    lock = Value("lock:{sid}", str, lifetime=after("1h"), doc="a lock")
    daily = Counter("visits:{uid}:{day:date}", lifetime=after("30d"), member_of="user:{uid}", doc="visits a day")
    account = Value("account:{uid}", Account, lifetime=never("kept"), member_of="user:{uid}", doc="who the user is")
'''
SEAL_KEYS = "2026:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
SEALED = b'{"name":"Ada","secret":"sealed.2026.AAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}'


class Program:
    """A folder with a module `myapp.keys` and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/app.db"
        (folder / "myapp").mkdir()
        (folder / "myapp" / "__init__.py").touch()
        (folder / "myapp" / "keys.py").write_text(SOURCE)
        self.write(("DBSIZE",))  # makes the file: a command that looks at a store wants it to be there
        self.write(("DBSIZE",))  # which makes the database: the commands work on one that is there

    def keystead(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        return forking.run(arguments, self.folder, environment({"KEYSTEAD_STORE": self.url, **settings}))

    def store(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        """Do something with the store itself."""

        async def open_and_work() -> Any:
            async with connect(self.url) as store:
                return await work(store)

        return asyncio.run(open_and_work())

    def write(self, *commands: tuple[Any, ...]) -> list[Any]:
        replies: list[Any] = self.store(lambda store: store.run(commands))
        return replies

    def stored_keys(self) -> set[str]:
        async def scan(store: Store) -> set[str]:
            return {key.decode() async for page in store.scan() for key in page}

        found: set[str] = self.store(scan)
        return found

    def fill(self, uid: str = "u1") -> None:
        """Two sessions, a lock and a counter, as the program would write them."""
        month_ms = 30 * 86_400_000
        self.write(
            ("SET", f"sess:{uid}a", f'{{"uid":"{uid}"}}', "PX", month_ms),
            ("SET", f"sess:{uid}b", f'{{"uid":"{uid}"}}', "PX", month_ms),
            ("SADD", f"user:{uid}:sessions", f"{uid}a", f"{uid}b"),
            ("SET", f"lock:{uid}a", "x", "PX", 3_600_000),
            ("SET", f"visits:{uid}:2026-02-23", 7, "PX", month_ms),
        )


def output(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON output of a command without errors."""
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def assert_one_sentence(result: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    assert result.returncode == code, result
    assert result.stdout == ""
    assert result.stderr.startswith("keystead: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert [part for part in said if part not in result.stderr] == [], result.stderr
