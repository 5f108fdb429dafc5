"""The scripts of the elements and the page that creates widgets, as served."""

from __future__ import annotations

import re
from pathlib import Path

import keystead
from keystead.kits.widgets.themes import ICON_PATHS, THEMES
from tests.kits.widgets.http.visiting import Running, Visitor, running

COMPONENTS = Path(keystead.__file__).parent / "kits" / "widgets" / "components"


async def test_scripts_are_served_with_type_and_cache_headers(visitor: Visitor) -> None:
    for file in COMPONENTS.glob("*.js"):
        answer = await visitor.http.get(f"/components/{file.name}")
        assert (answer.status_code, answer.content) == (200, file.read_bytes())
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["cache-control"] == "public, max-age=3600"
        again = await visitor.http.get(f"/components/{file.name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("visit", "like", "ranking", "bbs", "widgets"):
        assert (COMPONENTS / f"{name}.js").exists()


async def test_every_imported_script_exists(visitor: Visitor) -> None:
    waiting, seen = ["visit.js", "like.js", "ranking.js", "bbs.js", "widgets.js"], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            answer = await visitor.http.get(f"/components/{name}")
            assert answer.status_code == 200, name
            waiting += re.findall(r"""(?:from|import)\s*\(?\s*["']\./([\w-]+\.js)["']""", answer.text)
    assert "themes.js" in seen


async def test_the_themes_are_the_same_for_elements_and_pictures(visitor: Visitor) -> None:
    text = (await visitor.http.get("/components/themes.js")).text
    for theme in THEMES.values():
        assert f'"{theme.name}"' in text
        assert theme.accent in text
    assert all(f'"{icon}"' in text for icon in ICON_PATHS)


async def test_no_other_file_is_served(visitor: Visitor) -> None:
    for path in (
        "/components/none.js",
        "/components/",
        "/components/visit",
        "/components/..%2Fkeys.py",
        "/components/.js",
    ):
        assert (await visitor.http.get(path)).status_code == 404, path


async def test_the_gallery_runs_its_own_scripts_only(site: Running) -> None:
    answer = await site.visitor().http.get("/widgets", headers={"accept": "text/html"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]* src=)", answer.text)
    assert not re.search(r"\son\w+=|\sstyle=", answer.text)


async def test_the_gallery_knows_what_get_may_write() -> None:
    async with running("memory://", get_writes="none") as site:
        assert 'data-get-writes="none"' in (await site.visitor().http.get("/widgets")).text


async def test_the_start_page_links_to_both_examples(visitor: Visitor) -> None:
    page = (await visitor.http.get("/")).text
    for path in re.findall(r'<ul class="examples">(.*?)</ul>', page, re.DOTALL)[0].split('href="')[1:]:
        answer = await visitor.http.get(path.partition('"')[0].replace("&amp;", "&"))
        assert answer.status_code == 200
