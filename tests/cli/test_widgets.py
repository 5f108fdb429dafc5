"""`keystead show` and `keystead delete` for operators of widgets: the default store, and only the name of a service."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

from keystead import Store, connect
from tests import forking
from tests.kits.widgets.http.visiting import BBS, LIKE, PATHS, RANKING, TOKEN, VISIT, data, running
from tests.serving import environment

PAGE = "https://gone.example/page"
KEPT = "https://kept.example/page"
SERVICES = {VISIT: "counter", LIKE: "like", RANKING: "ranking", BBS: "bbs"}


def keystead(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the sealing keys: show and delete do not need them."""
    return forking.run(arguments, folder, environment())


async def filled(folder: Path) -> str:
    """Create a widget of each service for two pages. Returns the ids of the first page."""
    async with running(f"sqlite:///{folder}/keystead.db") as site:
        ids: set[str] = set()
        for url in (PAGE, KEPT):
            for path in PATHS:
                visitor = site.visitor()
                id = await visitor.create(path, url)
                ids |= {id} if url == PAGE else set()
                match SERVICES[path]:
                    case "counter":
                        data(await visitor.post(path, "increment", id=id))
                    case "like":
                        data(await visitor.post(path, "toggle", id=id))
                    case "ranking":
                        data(await visitor.post(path, "submit", id=id, name="Ann", score=42))
                    case _:
                        data(await visitor.post(path, "post", id=id, message="a message to be seen"))
        [id] = ids
        return id


async def held(folder: Path) -> list[str]:
    async with connect(f"sqlite:///{folder}/keystead.db") as store:
        return await _keys(store)


async def _keys(store: Store) -> list[str]:
    """The keys, without those of the server itself and marks that expire within a minute."""
    keys = [key.decode() async for page in store.scan() for key in page]
    is_mark = re.compile(r"schedule:|widgets:requests:|bbs:[\w-]+:post|ranking:[\w-]+:submit")
    return sorted(key for key in keys if not is_mark.match(key))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server. Each test deletes another service of the first page."""
    return tmp_path_factory.mktemp("widgets")


@pytest.fixture(scope="module")
def id(folder: Path) -> str:
    return asyncio.run(filled(folder))


@pytest.mark.matrix
def test_a_service_is_shown_and_deleted_by_its_name_alone(folder: Path, id: str) -> None:
    before = asyncio.run(held(folder))
    shown = keystead(folder, "show", "counter")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "WidgetKeys.counter" in shown.stdout
    assert f"counter:{id}" in shown.stdout
    assert PAGE in shown.stdout
    assert "counter_total" in shown.stdout  # what goes with it

    one = keystead(folder, "show", "counter", id)
    assert (one.returncode, one.stderr) == (0, "")
    for row in (
        f"counter:{id}:total",
        f"counter:{id}:daily:",
        f"counter:{id}:visit:",
        "url:counter:",
        "counters:index",
    ):
        assert row in one.stdout, row
    assert KEPT not in one.stdout
    assert TOKEN not in one.stdout

    dry = keystead(folder, "delete", "counter", id, "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert f"delete counter:{id}" in dry.stdout
    assert f"take out {id} of counters:index" in dry.stdout
    assert asyncio.run(held(folder)) == before

    assert keystead(folder, "delete", "counter", id, "--yes").returncode == 0
    left = asyncio.run(held(folder))
    assert [key for key in before if key.startswith("counter:") and id in key]
    assert [key for key in left if "counter" in key and (id in key or "gone" in key)] == []
    # And nothing else went.
    gone = set(before) - set(left)
    assert all(key.startswith((f"counter:{id}", "url:counter:")) for key in gone), gone

    again = keystead(folder, "show", "counter", id)
    assert (again.returncode, again.stderr) == (1, f"there is no counter:{id}\n")


@pytest.mark.parametrize("service", ["like", "ranking", "bbs"])
def test_each_other_service_is_shown_with_its_related_keys_and_deleted(folder: Path, id: str, service: str) -> None:
    found = json.loads(keystead(folder, "show", service, id, "--json").stdout)
    keys = {sample["key"] for one in found["families"] for sample in one["samples"]}
    assert {f"{service}:{id}", f"{service}:{id}:owner"} < keys
    assert [one["key"] for one in found["listed"]] == [f"{service}s:index"]
    assert keystead(folder, "delete", service, id, "--yes").returncode == 0
    left = asyncio.run(held(folder))
    assert [key for key in left if key.startswith((f"{service}:{id}", f"url:{service}:")) and "kept" not in key] == []
