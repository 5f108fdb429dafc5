"""The blog example: its builder against a real server, its page in a real browser."""

import runpy
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.async_api import Browser, expect

from tests.browser.embedding import widgets_serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "blog"


def build(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["build.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE / "build.py"), run_name="__main__")
    return int(ended.value.code or 0)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.matrix
async def test_a_post_counts_its_visit_and_takes_likes_and_messages(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with widgets_serving(tmp_path) as server:
        options = ["--server", server.url, "--token", "my-own-token", "--into", str(tmp_path / "site")]
        assert build(monkeypatch, *options) == 0
        assert build(monkeypatch, *options) == 0  # finds the widgets again
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "site")) as files:
            thread = Thread(target=files.serve_forever, args=(0.05,))
            thread.start()
            try:
                page = await (await browser.new_context(locale="en-US")).new_page()
                await page.goto(f"http://127.0.0.1:{files.server_port}/first-post.html")
                await expect(page.locator("keystead-counter")).to_contain_text("1")
                like = page.locator("keystead-like button.like")
                await like.click()
                await expect(page.locator("keystead-like")).to_contain_text("1")
                board = page.locator("keystead-bbs")
                await board.locator("textarea").fill("<b>Hello</b> from a reader")
                await board.get_by_role("button", name="Post").click()
                await expect(board).to_contain_text("<b>Hello</b> from a reader")
                await page.context.close()
            finally:
                files.shutdown()
                thread.join()


def test_the_builder_says_what_to_do_without_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(monkeypatch, "--server", "http://127.0.0.1:1", "--token", "t", "--into", str(tmp_path)) == 1
    assert "start it with: keystead serve" in capsys.readouterr().err
