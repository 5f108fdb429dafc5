"""A third-party kit can have keys, settings, tables, jobs, pages and assets."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from keystead.schema.check import check
from keystead.server import Settings, create_app
from keystead.server.kit_loading import load_kit
from tests.serving import keystead_serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "guestbook"
BASE = "http://127.0.0.1:8700"


@pytest.fixture(autouse=True)
def guestbook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "guestbook"]:
        del sys.modules[name]


async def test_the_kit_has_a_page_with_assets_settings_a_table_and_a_job() -> None:
    kit = load_kit("guestbook.kit:KIT")
    assert check([kit.keyspace]) == []
    app = create_app(Settings(store="memory://", database="memory://", public_url=BASE), [kit])
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            assert (await client.get("/api/guestbook")).json() == []
            for name in ("ann", "bob"):
                sent = await client.post("/api/guestbook", json={"name": name, "text": "<b>hello</b>"})
                assert sent.status_code == 200, sent.text
            assert [one["name"] for one in (await client.get("/api/guestbook")).json()] == ["bob", "ann"]
            assert list((await client.get("/api/guestbook/days")).json().values()) == [2]
            more = [client.post("/api/guestbook", json={"name": "eve", "text": "hi"}) for _ in range(15)]
            assert {sent.status_code for sent in await asyncio.gather(*more)} == {200}
            assert list((await client.get("/api/guestbook/days")).json().values()) == [17]
            page = await client.get("/guestbook")
            assert page.status_code == 200
            assert "&lt;b&gt;hello&lt;/b&gt;" in page.text
            for path in re.findall(r'href="(/(?:assets|static)/[^"]+)"', page.text):
                assert (await client.get(path)).status_code == 200, path
            [job] = kit.jobs(app.state.kits["guestbook"])
            assert job.name == "guestbook.prune"


async def test_it_is_served_by_the_command_in_its_readme(tmp_path: Path) -> None:
    for file in (EXAMPLE / "guestbook").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = tmp_path / file.relative_to(EXAMPLE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    with keystead_serving(tmp_path, None, "--kits", "guestbook.kit:KIT") as server:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            assert "There are no entries yet." in (await client.get("/guestbook")).text
            assert ".entry" in (await client.get("/assets/guestbook/guestbook.css")).text
            assert "/guestbook" in (await client.get("/")).text
