"""`keystead tables` as an operator meets it."""

from pathlib import Path
from typing import Any

from tests.cli.program import Program, output


def test_an_upgrade_is_shown_then_done_then_nothing_is_left_to_do(program: Program) -> None:
    file = Path(program.folder) / "app.tables.db"
    shown = program.keystead("tables", "upgrade", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"the tables of membership in sqlite:///{file} would go from version 0 to 1:\n")
    assert not file.exists()
    done = program.keystead("tables", "upgrade")
    assert "went from version 0 to 1" in done.stdout
    assert file.exists()
    listed: Any = output(program.keystead("tables", "upgrade", "--json"))
    assert [one["tables"] for one in listed] == ["membership", "teamwork"]
    for told in listed:
        assert (told["found"], told["version"], told["changes"]) == (1, 1, [])


def test_a_store_without_a_place_for_tables_needs_one_to_be_named(program: Program) -> None:
    asked = program.keystead("tables", "upgrade", KEYSTEAD_STORE="redis://127.0.0.1:1/0")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "name one with --database URL" in asked.stderr
