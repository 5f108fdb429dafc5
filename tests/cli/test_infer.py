"""`keystead infer` on a store that a server with all six kits wrote, and on noise."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Store, connect
from keystead.cli.keyspace_arguments import keyspaces
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.family import Family
from keystead.schema.family_lookup import Belonging
from keystead.schema.infer import Inferred, infer, keys_module
from keystead.schema.lifetime import Never, Sliding
from tests.cli.program import Program
from tests.cli.used_server import used_server


def lifetime_class(family: Family[Any]) -> str:
    lifetime = family.lifetime
    return "never" if isinstance(lifetime, Never) else "sliding" if isinstance(lifetime, Sliding) else "fixed"


def imported(text: str, folder: Path) -> type[Keyspace]:
    """The keyspace of a drafted module, imported from a file as a user does."""
    path = folder / "drafted_keys.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("drafted_keys", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["drafted_keys"] = module
    spec.loader.exec_module(module)
    keyspace: type[Keyspace] = module.AppKeys
    return keyspace


def owner_of(store: Store, *classes: type[Keyspace]) -> Callable[[bytes], Family[Any] | None]:
    bounds = [bound for one in classes for bound in one(store, needs_seal=False).bounds()]
    belonging = Belonging(store, bounds)

    def find(raw: bytes) -> Family[Any] | None:
        member = belonging.of(raw)
        return None if member is None else member.bound.family

    return find


async def all_keys(store: Store) -> list[bytes]:
    return sorted({key async for page in store.scan("*") for key in page})


def test_a_draft_of_the_keys_of_all_kits_is_right_and_sound(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keystead.db"

    async def look() -> None:
        async with connect(url) as store:
            truth = owner_of(store, *keyspaces(None))

            async def use() -> None:  # what users do between the two looks: sliding deadlines move
                for raw in await all_keys(store):
                    family = truth(raw)
                    if family is not None and isinstance(family.lifetime, Sliding):
                        await store.run([("PEXPIRE", raw, family.lifetime.ms + 3_000)])

            found = await infer(store, between=use)
            text = keys_module(found.draft)
            keyspace = imported(text, tmp_path)
            assert check([keyspace]) == []
            drafted = owner_of(store, keyspace)
            keys = await all_keys(store)
            wrong = [
                (key, true.name, mine and (mine.name, mine.kind_name, lifetime_class(mine)))
                for key in keys
                if (true := truth(key)) is not None
                and ((mine := drafted(key)) is None or mine.kind_name != true.kind_name
                     or lifetime_class(mine) != lifetime_class(true))
            ]
            assert len(keys) > 40
            assert len(wrong) <= len(keys) * 0.05, (len(keys), wrong)
            report = await examine([keyspace(store)])
            assert report.counts == {}, [one.finding for one in report.found]

    with used_server(tmp_path, url) as running:
        running.stop()
    asyncio.run(look())
    for columns in ("88", "120"):
        formatted = subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--isolated", "--check", "--line-length", columns, "drafted_keys.py"],
            cwd=tmp_path, capture_output=True, text=True,
        )
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
