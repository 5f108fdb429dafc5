"""`/guide`: there as soon as it is built; until then it says how to get it."""

from pathlib import Path

import httpx2
from fastapi import FastAPI

from keystead.kits.login import KIT as LOGIN
from keystead.server import guide_pages
from tests.kits.signing_in import HTML, serving


async def test_the_guide_is_served_from_the_moment_when_it_is_built(tmp_path: Path) -> None:
    app = FastAPI()
    guide_pages.add_guide(app, tmp_path)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", follow_redirects=True) as client:
        for path in ("/guide", "/guide/", "/guide/sessions.html"):
            answer = await client.get(path)
            assert (answer.status_code, answer.url.path) == (200, "/guide/")
            assert f"make -C {Path(__file__).parents[2]} docs" in answer.text
        (tmp_path / "index.html").write_text("<h1>Guide</h1>")
        assert (await client.get("/guide")).text == "<h1>Guide</h1>"
        assert (await client.get("/guide/sessions.html")).status_code == 404


async def test_pages_lead_to_the_guide_in_development_only() -> None:
    async with serving([LOGIN]) as server:
        browser = server.browser()
        assert 'href="/guide/"' in (await browser.get("/", headers=HTML)).text
        missing = await browser.get("/no-such-page", headers=HTML)
        assert missing.status_code == 404
        assert 'href="/guide/troubleshooting.html"' in missing.text
        assert 'href="/guide/reference/http.html#NOT_FOUND"' in missing.text
        assert (await browser.get("/guide/troubleshooting.html")).status_code != 404
    async with serving([LOGIN], mode="production") as server:
        missing = await server.browser().get("/guide", headers=HTML)
        assert missing.status_code == 404
        assert 'href="/guide' not in missing.text
