"""Commands of a third-party kit, end to end."""

import asyncio
import json
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from keystead import connect
from keystead.kits import COMMANDS, ROUTED
from tests import forking
from tests.cli.program import SEAL_KEYS, assert_one_sentence
from tests.serving import environment

ROOT = Path(__file__).parents[2]
KIT = "tests.server.household:KIT"


class House:
    """A folder with a store, and the kit of a house."""

    def __init__(self, folder: Path, kits: str = KIT) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/house.db"
        self.kits = kits

    def make(self) -> "House":
        async def touch() -> None:
            async with connect(self.url) as store:
                await store.run([("DBSIZE",)])

        asyncio.run(touch())
        return self

    def keystead(self, *arguments: str, seal: bool = False) -> subprocess.CompletedProcess[str]:
        variables = {"KEYSTEAD_STORE": self.url, "KEYSTEAD_KITS": self.kits, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        if seal:
            variables["KEYSTEAD_SEAL_KEYS"] = SEAL_KEYS
        return forking.run(arguments, self.folder, environment(variables))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path).make()


def test_a_third_party_kit_has_its_own_commands(house: House) -> None:
    first = house.keystead("household", "add-rooms", "guests", "--count", "2")
    assert (first.returncode, first.stdout, first.stderr) == (0, "guests: 2\n", "Sweep them.\n")
    second = house.keystead("household", "add-rooms", "guests", "--json")
    assert json.loads(second.stdout) == {"name": "guests", "rooms": 3}
    assert second.stderr == ""
    assert house.keystead("household", "burn").returncode == 1


def test_help_shows_the_kit_and_its_commands(house: House) -> None:
    assert "household" in house.keystead("--help").stdout
    group = house.keystead("household", "--help").stdout
    assert "Look after a house." in group
    assert "add-rooms" in group
    said = house.keystead("household", "add-rooms", "--help").stdout
    assert "What the rooms are for." in said
    assert "--store" in said
    assert "--json" in said


def test_usage_errors_are_one_line(house: House) -> None:
    assert_one_sentence(house.keystead("household", "add-rooms", "x", "--count", "0"), 1)
    assert house.keystead("household", "sell").returncode == 2
    assert house.keystead("nothing").returncode == 2


def test_a_command_refuses_a_missing_store(tmp_path: Path) -> None:
    assert_one_sentence(House(tmp_path).keystead("household", "burn"), 2)
    assert not (tmp_path / "house.db").exists()


def test_invalid_settings_are_reported_and_do_not_hide_the_help(tmp_path: Path) -> None:
    wrong = House(tmp_path, "tests.server.nowhere:KIT").make()
    assert wrong.keystead("--help").returncode == 0
    assert_one_sentence(wrong.keystead("household", "burn"), 2)


def test_a_third_party_kit_replaces_the_built_in_kit_of_the_same_name(house: House) -> None:
    (house.folder / "office.py").write_text(
        "from keystead.kits.teamwork import teamwork_kit\n"
        "async def find(user):\n"
        "    return None\n"
        "KIT = teamwork_kit(load=find)\n"
    )
    house.kits = "office:KIT"
    said = house.keystead("teamwork", "create-team", "x", seal=True)
    assert_one_sentence(said, 1, "Another application manages")


def test_terminal_control_characters_are_escaped(house: House) -> None:
    said = house.keystead("household", "add-rooms", "\x1b[2J")
    assert said.stdout == "\\x1b[2J: 1\n"


def test_the_list_of_commands_matches_the_kits() -> None:
    kits = {name: import_module(module).KIT.commands for name, module in ROUTED.items()}
    assert {name: place for name, place in kits.items() if place is not None} == COMMANDS
