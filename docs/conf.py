"""How `make docs` builds the guide. The pages read well in a repository browser, too, so they use plain Markdown only;
the navigation is made of the links of `index.md`.
"""

import re
from collections.abc import Iterator

from sphinx.application import Sphinx

project = "Keystead"
author = "The Keystead authors"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = "Keystead"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4  # headings are link targets, as in a repository browser
# Links to files outside this folder, which a repository browser shows. `tests/test_project.py` checks all links.
suppress_warnings = ["myst.xref_missing", "myst.header"]

_HEADING_OR_LINK = re.compile(r"^## (?P<heading>.+)$|^- \[(?P<title>[^\]]+)\]\((?P<page>[^)]+)\.md\)", re.MULTILINE)


def _navigation(index: str) -> Iterator[str]:
    sections: dict[str, list[str]] = {}
    for found in _HEADING_OR_LINK.finditer(index):
        if found["heading"]:
            pages = sections.setdefault(found["heading"], [])
        else:
            pages.append(f"{found['title']} <{found['page']}>")
    for heading, pages in sections.items():
        yield "\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""])


_DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _DIAGRAM.sub("", source[0])  # drawn by repository browsers; here it would need a script of 3 MB
    if page == "index":
        source[0] += "".join(_navigation(source[0]))
    if page == "keys/README":
        others = sorted(name for name in app.env.found_docs if name.startswith("keys/") and name != page)
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *(f"/{name}" for name in others), "```", ""])


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_navigation)
