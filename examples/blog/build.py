"""Builds a static blog whose posts have a visit counter, a like button and a message board.

    python build.py --server http://127.0.0.1:8700 --token my-own-token

It needs only the standard library. Run it as often as you like: a widget that exists is found again by its page's URL.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import sys
from pathlib import Path
from string import Template
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

HERE = Path(__file__).parent
BLOG = "https://blog.example"  # where the blog will be; its pages' URLs name the widgets
SERVER = os.environ.get("BLOG_SERVER", "http://127.0.0.1:8700")
WIDGETS = {"counter": "visit", "like": "like", "board": "bbs"}


def create_widget(server: str, kind: str, url: str, token: str) -> str:
    """The id of the widget of a page; created if there is none."""
    body = json.dumps({"action": "create", "url": url, "token": token}).encode()
    request = Request(f"{server}/api/{kind}", body, {"content-type": "application/json"})  # noqa: S310 - the operator names it
    with urlopen(request, timeout=10) as answer:  # noqa: S310
        return str(json.load(answer)["data"]["id"])


def build(server: str, token: str, folder: Path) -> list[Path]:
    """Write a page for each post. Its first line is the title, and empty lines separate paragraphs."""
    template = Template((HERE / "post.html").read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for post in sorted((HERE / "posts").glob("*.txt")):
        title, *paragraphs = post.read_text("utf-8").strip().split("\n\n")
        ids = {name: create_widget(server, kind, f"{BLOG}/{post.stem}", token) for name, kind in WIDGETS.items()}
        text = "\n".join(f"<p>{html.escape(one)}</p>" for one in paragraphs)
        page = folder / f"{post.stem}.html"
        page.write_text(template.substitute(ids, server=server, title=html.escape(title), text=text), "utf-8")
        pages.append(page)
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the blog into a folder.")
    parser.add_argument("--server", default=SERVER, help="the Keystead server with the widgets kit")
    parser.add_argument("--token", required=True, help="your own secret: with it you own the widgets")
    parser.add_argument("--into", type=Path, default=HERE / "site", help="the folder for the pages")
    given = parser.parse_args()
    try:
        pages = build(given.server.rstrip("/"), given.token, given.into)
    except HTTPError as error:
        print(f"The server refused: {json.load(error).get('error', error)}", file=sys.stderr)
        return 1
    except URLError as error:
        print(f"{given.server} does not answer ({error.reason}); start it with: keystead serve", file=sys.stderr)
        return 1
    for page in pages:
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
