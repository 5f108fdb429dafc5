"""A third-party store: its scheme works everywhere, and it is tested against the contract."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from keystead import connect
from keystead.errors import BadUrl, MissingExtra
from keystead.testing import StoreContract
from keystead.testing.contract import Honesty
from keystead.testing.contract.atomic_contract import Atomic
from keystead.testing.contract.caller_contract import Callers
from keystead.testing.contract.string_contract import Errors, KeyContract, Strings


def claim(folder: Path, package: str, scheme: str, value: str) -> None:
    """A package of this name is installed, as far as its metadata goes."""
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[keystead.stores]\n{scheme} = {value}\n")


class OnDictionary:
    @pytest.fixture
    def url(self, installed: Path) -> str:
        return f"dictionary://{uuid4().hex}"


class TestDictionary(OnDictionary, Honesty, Callers, Strings, KeyContract, Errors, Atomic):
    """What a third-party store gets from the base class, and its own methods."""


@pytest.mark.matrix
class TestWholeContract(OnDictionary, StoreContract):
    """All of it."""


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(BadUrl, match="dictionary:// is not the scheme of a store"):
        connect("dictionary://a")


def test_an_installed_package_is_enough(installed_in: Path) -> None:
    program = (
        "import asyncio, keystead\n"
        "async def main():\n"
        "    async with keystead.connect('Dictionary://a') as store:\n"
        "        print(store.url, await store.run([('SET', 'k', 'v'), ('GET', 'k')]))\n"
        "asyncio.run(main())"
    )
    path = os.pathsep.join(filter(None, (str(installed_in), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == "dictionary://a [b'OK', b'v']\n"


def test_url_errors_of_the_package_are_passed_on(installed: Path) -> None:
    with pytest.raises(BadUrl, match="write dictionary://name"):
        connect("dictionary://a/b")


def test_a_scheme_that_is_nearly_right_is_named(installed: Path) -> None:
    with pytest.raises(BadUrl, match=r"is it dictionary://\?"):
        connect("dictionry://a")


def test_a_scheme_of_keystead_cannot_be_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, "greedy", "memory", "greedy:store")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(connect("memory://")).__module__ == "keystead.stores.sqlite.sqlite_store"


def test_a_scheme_that_two_packages_claim_is_refused(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, "other-dictionary", "dictionary", "other:store")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadUrl, match="keystead-dictionary and other-dictionary; uninstall all but one"):
        connect("dictionary://a")


def test_a_package_that_cannot_be_imported_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, "half-there", "half", "half_there:store")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra, match="the package half-there provides half://"):
        connect("half://a")


def test_a_package_that_fails_on_import_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, "broken-one", "broken", "broken_one:store")
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('no such driver')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra, match="cannot be imported: RuntimeError: no such driver"):
        connect("broken://a")


def test_a_function_that_returns_no_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, "odd-one", "odd", "builtins:str")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadUrl, match="odd-one returned a str for odd://, not a store"):
        connect("odd://a")
