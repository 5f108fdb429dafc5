"""How `make docs` builds the guide. The pages read well in a repository browser, too, so they use plain Markdown only;
the navigation is made of the links of `index.md`.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_DOCS = Path(__file__).parent

project = "Keystead"
release = re.findall(r'__version__ = "(.+)"', (_DOCS.parent / "src/keystead/__init__.py").read_text())[0]
author = "The Keystead authors"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"Keystead {release}"
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(_DOCS / "search_ranking.js")
myst_heading_anchors = 4  # headings are link targets, as in a repository browser
# Links to files outside this folder, which a repository browser shows. `tests/test_project.py` checks all links.
suppress_warnings = ["myst.header"]

_HEADING_OR_LINK = re.compile(r"^## (?P<heading>.+)$|\[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)


def _navigation(index: str) -> Iterator[str]:
    sections: dict[str, list[str]] = {}
    for found in _HEADING_OR_LINK.finditer(index):
        if found["heading"]:
            pages = sections.setdefault(found["heading"], [])
        elif not found["page"].startswith("../"):
            pages.append(f"{found['title']} <{found['page']}>")
    for heading, pages in sections.items():
        if not pages:
            continue
        yield "\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""])


_LANGUAGES = ("ja", "ko")  # the folders of translated pages
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_NODE = re.compile(r'^ +(\w+)\["(.*?)<br>', re.MULTILINE)
_EDGE = re.compile(r"^ +(\w+) \S+\|(.+?)\| (\w+)$", re.MULTILINE)


def _relations(diagram: re.Match[str]) -> str:
    """What repository browsers draw, as a list: a drawing would need a script of 3 MB."""
    keys = {node: html.unescape(re.sub(r"#(\d+);", r"&#\1;", key)) for node, key in _NODE.findall(diagram[1])}
    return "".join(f"- `{keys[start]}` {says} `{keys[end]}`\n" for start, says, end in _EDGE.findall(diagram[1]))


_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]+)?\)")


def _without_links_to_the_sources(page: Path, text: str) -> str:
    """Folders and pages beside `docs` are no part of the site, so they are named. Files become downloads."""

    def name(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        is_outside = not target.is_relative_to(_DOCS) and (target.is_dir() or target.suffix == ".md")
        return f"{link[1]} (`{target.relative_to(_DOCS.parent)}`)" if is_outside else link[0]

    return _LINK.sub(name, text)


def _adapt(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _without_links_to_the_sources(_DOCS / page, _DIAGRAM.sub(_relations, source[0]))
    if page == "index":
        source[0] += "".join(_navigation(source[0]))
    if page == "tutorial":
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", "", *(f"{one}/tutorial" for one in _LANGUAGES), "```", ""]
        )
    if page == "keys/README":
        others = sorted(name for name in app.env.found_docs if name.startswith("keys/") and name != page)
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *(f"/{name}" for name in others), "```", ""])


def _set_language(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    folder = page.partition("/")[0]
    if folder in _LANGUAGES:
        context["language"] = folder


def setup(app: Sphinx) -> None:
    app.connect("source-read", _adapt)
    app.connect("html-page-context", _set_language)
