"""A Python and a TypeScript team share one key document through the gateway."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.export import upstash_client
from tests import servers

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway"
OPTIONS = ("--strict", "--target", "es2022", "--module", "nodenext")
USE = """
import { GET, POST } from "./app/api/wishes/route.js";
import worker from "./worker/worker.js";

const wishes = "http://shop/api/wishes?uid=42";
const add = (item) => POST(new Request(wishes, { method: "POST", body: JSON.stringify({ item }) }));
const view = (page) => worker.fetch(new Request(`http://shop/${page}`), process.env);
const said = [await GET(new Request(wishes)), await add("tea"), await add("a cup"), await view("tea")];
said.push(await view("tea"));
console.log(JSON.stringify(await Promise.all(said.map((answer) => answer.json()))));
"""


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        del sys.modules[name]


def keyspace() -> Any:
    from shop.keys import ShopKeys

    return ShopKeys


def test_the_generated_keys_are_those_of_the_document() -> None:
    assert check([keyspace()]) == []
    assert (EXAMPLE / "web" / "keys.ts").read_text() == upstash_client([keyspace()])


def test_the_packages_of_the_example_are_those_that_the_tests_use() -> None:
    _, packages = servers.node_with("upstash_clients")
    own, tested = (json.loads((folder / "package.json").read_text()) for folder in (EXAMPLE / "web", packages))
    for kind in ("dependencies", "devDependencies"):
        assert own[kind].items() <= tested[kind].items()


@pytest.fixture
def compiled() -> Iterator[Path]:
    """The TypeScript of the example, compiled beside the packages."""
    node, packages = servers.node_with("upstash_clients")
    folder = packages / f"example-{os.getpid()}"
    try:
        shutil.copytree(EXAMPLE / "web", folder)
        (folder / "package.json").write_text('{ "type": "module" }')
        (folder / "use.js").write_text(USE)
        files = [str(path) for path in folder.rglob("*.ts")]
        done = subprocess.run(
            [node, "node_modules/typescript/bin/tsc", *OPTIONS, *files], cwd=packages, capture_output=True, text=True
        )
        assert done.stdout == ""
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.matrix
async def test_what_typescript_writes_python_reads_and_the_other_way_round(compiled: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    async with connect(url) as store:
        keys = keyspace()(store)
        await keys.profile(42).set(sys.modules["shop.keys"].Profile(name="Ann"))
        with servers.gateway(url, "shop.keys:ShopKeys", "enforce") as gateway:
            found = {"UPSTASH_REDIS_REST_URL": gateway.url, "UPSTASH_REDIS_REST_TOKEN": gateway.tokens["write"]}
            node, _ = servers.node_with("upstash_clients")
            process = await asyncio.create_subprocess_exec(
                node, str(compiled / "use.js"), env={**os.environ, **found}, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
        assert json.loads(out) == [
            {"name": "Ann", "wishes": []},
            {"name": "Ann", "wishes": ["tea"]},
            {"name": "Ann", "wishes": ["a cup", "tea"]},
            {"page": "tea", "views": 1},
            {"page": "tea", "views": 2},
        ]
        assert await keys.wishes(42).members() == {"tea", "a cup"}
        assert await keys.views("tea").get() == 2
