"""`keystead tables`, end to end."""

from pathlib import Path
from typing import Any

import pytest

from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from tests.cli.program import Program, assert_one_sentence, output

VERSIONS = {one.name: one.version for one in (MEMBERSHIP_TABLES, TEAMWORK_TABLES)}


def test_an_upgrade_is_previewed_and_done_once(program: Program) -> None:
    file = Path(program.folder) / "app.tables.db"
    shown = program.keystead("tables", "upgrade", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(
        f"the tables of membership in sqlite:///{file} would be upgraded from version 0 to {VERSIONS['membership']}:\n"
    )
    assert not file.exists()
    done = program.keystead("tables", "upgrade")
    for version in VERSIONS.values():
        assert f"were upgraded from version 0 to {version}:" in done.stdout
    assert file.exists()
    listed: Any = output(program.keystead("tables", "upgrade", "--json"))
    assert {one["tables"]: one["version"] for one in listed} == VERSIONS
    assert [(one["found"], one["changes"]) for one in listed] == [(version, []) for version in VERSIONS.values()]


def test_production_requires_a_database_if_the_store_cannot_hold_tables(program: Program) -> None:
    settings = {"KEYSTEAD_STORE": "redis://127.0.0.1:1/0", "KEYSTEAD_MODE": "production"}
    asked = program.keystead("tables", "upgrade", **settings)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "name a database with --database URL" in asked.stderr
    named = program.keystead("tables", "upgrade", "--database", f"sqlite:///{program.folder}/named.db", **settings)
    assert named.returncode == 0, named.stderr
    assert (program.folder / "named.db").exists()


def test_in_development_such_a_store_has_a_file_in_the_working_directory(program: Program) -> None:
    done = program.keystead("tables", "upgrade", KEYSTEAD_STORE="redis://127.0.0.1:1/0")
    assert done.returncode == 0, done.stderr
    assert (program.folder / "keystead.tables.db").exists()


@pytest.mark.matrix
def test_the_setting_names_the_database_and_a_flag_wins(program: Program) -> None:
    setting = {"KEYSTEAD_DATABASE": f"sqlite:///{program.folder}/setting.db"}
    assert program.keystead("tables", "upgrade", **setting).returncode == 0
    flag = ("--database", f"sqlite:///{program.folder}/flag.db")
    assert program.keystead("tables", "upgrade", *flag, **setting).returncode == 0
    assert {file.name for file in program.folder.glob("*.db")} == {"app.db", "setting.db", "flag.db"}
    wrong = program.keystead("tables", "upgrade", KEYSTEAD_DATABASE="redis://ann:secret@127.0.0.1/0")
    assert_one_sentence(wrong, 2)
    assert "secret" not in wrong.stderr
