"""`keystead erase` erases only the person of the named identity space, not others with the same number."""

from __future__ import annotations

import asyncio

import pytest
from typer import Exit

import keystead.cli.erase_command as erase_command
from keystead.errors import StoreUnavailable
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.kits.teamwork import UserSession
from keystead.kits.teamwork.service.people import People
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.parts.tables import open_tables
from tests.cli.program import Program, assert_one_sentence, output
from tests.real_servers import redis_server
from tests.servers import Server

__all__ = ["redis_server"]

SPACES = ("login", "membership", "sessiondata", "teamwork")
BEN = UserSession(name="Ben", email="", role="DEVELOPER", team_id=7, team_role="MEMBER")
NOW_MS = 1_790_000_025_000
# What 42 has in each kit; each is somebody else.
HELD = {
    "login": ("SADD", "user:42:sessions", "A" * 43),
    "membership": ("SET", "usertoken:42", "{}", "PX", 60_000),
    "teamwork": ("SADD", "dashboard:teams:42", "7"),
}


@pytest.fixture(params=["sqlite", "redis"])
def settings(request: pytest.FixtureRequest, program: Program) -> dict[str, str]:
    database = {"KEYSTEAD_DATABASE": f"sqlite:///{program.folder}/tables.db"}
    if request.param == "sqlite":
        return database
    server: Server = request.getfixturevalue("redis_server")
    server.ask("FLUSHALL")
    return database | {"KEYSTEAD_STORE": server.url}


def fill(program: Program, settings: dict[str, str]) -> int:
    """Write each of them. Returns the teamwork id of the user who signs in as 42."""

    async def write() -> int:
        async with open_tables(settings["KEYSTEAD_DATABASE"], MEMBERSHIP_TABLES, TEAMWORK_TABLES) as tables:
            await Ledger(tables).record_usage("42", "Pro", "e1", 10, NOW_MS)
            await People(tables).save(42, BEN)
            return await People(tables).add("Ada", identity="login:42")

    ada = asyncio.run(write())
    from keystead import connect

    async def put() -> None:
        async with connect(settings.get("KEYSTEAD_STORE", f"sqlite:///{program.folder}/app.db")) as store:
            await store.run([*HELD.values(), ("SADD", f"dashboard:teams:{ada}", "7")])

    asyncio.run(put())
    return ada


def held(program: Program, settings: dict[str, str]) -> set[str]:
    from keystead import connect

    async def look() -> set[str]:
        async with connect(settings.get("KEYSTEAD_STORE", f"sqlite:///{program.folder}/app.db")) as store:
            return {key.decode() async for page in store.scan() for key in page}

    return asyncio.run(look())


def test_a_bare_number_is_refused_with_the_possible_subjects(program: Program, settings: dict[str, str]) -> None:
    fill(program, settings)
    before = held(program, settings)
    refused = program.keystead("erase", "user:42", "--yes", **settings)
    choices = " or ".join(f"{space}:42" for space in SPACES)
    assert_one_sentence(refused, 2, "'user:42' names an unknown identity space", f"write {choices}")
    for wrong in ("42", "login:", ":42", ""):
        assert_one_sentence(program.keystead("erase", wrong, "--yes", **settings), 2, choices)
    assert held(program, settings) == before


def test_only_the_person_of_the_named_space_is_erased(program: Program, settings: dict[str, str]) -> None:
    ada = fill(program, settings)
    every = {"user:42:sessions", "usertoken:42", "dashboard:teams:42", f"dashboard:teams:{ada}"}
    assert held(program, settings) == every
    patron = output(program.keystead("erase", "membership:42", "--yes", "--json", **settings))
    assert patron["known_as"] == []
    assert held(program, settings) == every - {"usertoken:42"}
    assert set(patron["erased_rows"]) == {one for one in patron["rows"] if "membership" in one} != set()
    ben = output(program.keystead("erase", "teamwork:42", "--yes", "--json", **settings))
    assert ben["erased_rows"] == {"keystead_teamwork_people": 1}
    assert held(program, settings) == {"user:42:sessions", f"dashboard:teams:{ada}"}


@pytest.mark.matrix
def test_a_signed_in_user_is_erased_in_teamwork_too(program: Program, settings: dict[str, str]) -> None:
    ada = fill(program, settings)
    shown = program.keystead("erase", "login:42", "--dry-run", **settings)
    assert shown.stdout.startswith(f"login:42 is also teamwork:{ada}\n"), shown.stdout + shown.stderr
    done = program.keystead("erase", "login:42", "--yes", **settings)
    assert done.returncode == 0, done.stderr
    assert "  keystead_teamwork_people: 1 row\n" in done.stdout
    assert held(program, settings) == {"usertoken:42", "dashboard:teams:42", "audit:login"}
    noted = output(program.keystead("audit", "--event", "erased", "--json", **settings))
    assert noted["what"] == "login:42"
    assert noted["who"].startswith("operator:")
    again = program.keystead("erase", "login:42", "--yes", **settings)
    assert (again.returncode, again.stdout) == (0, "there is no data of login:42\n")


def test_an_interrupted_erasure_is_in_the_audit_log(
    program: Program, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run may find nothing to erase, and would write no entry."""
    fill(program, settings)

    async def interrupted(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(erase_command, "erase_all", interrupted)
    for name, value in {"KEYSTEAD_STORE": program.url, **settings}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(program.folder)
    with pytest.raises(Exit):
        erase_command.erase("login:42", yes=True)
    noted = output(program.keystead("audit", "--event", "erased", "--json", **settings))
    assert noted["what"] == "login:42"
