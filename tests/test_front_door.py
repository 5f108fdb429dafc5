"""The README in three languages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
READMES = [ROOT / name for name in ("README.md", "README.ja.md", "README.ko.md")]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FIGURE = re.compile(r"\d+\.\d+")


def text_only(document: str) -> str:
    return _FENCE.sub("", document)


def table_shapes(document: str) -> list[int]:
    return [line.count("|") for line in text_only(document).splitlines() if line.startswith("|")]


def heading_levels(document: str) -> list[str]:
    return re.findall(r"^#+ ", text_only(document), re.MULTILINE)


def links(document: str) -> list[str]:
    """All but those to the other languages, in an order that does not depend on the language."""
    return sorted(link for link in _LINK.findall(document) if not link.startswith(("README", "docs/pictures")))


def test_the_readmes_have_the_same_headings_code_links_tables_and_figures() -> None:
    english, *others = (path.read_text() for path in READMES)
    for other in others:
        assert _FENCE.findall(other) == _FENCE.findall(english)
        assert heading_levels(other) == heading_levels(english)
        assert table_shapes(other) == table_shapes(english)
        assert sorted(_FIGURE.findall(text_only(other))) == sorted(_FIGURE.findall(text_only(english)))
        assert links(other) == links(english)


def test_every_figure_of_the_readme_is_in_the_benchmarks() -> None:
    comparison = READMES[0].read_text().partition("## Why not")[2].partition("## ")[0]
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    figures = set(_FIGURE.findall(comparison))
    assert len(figures) > 10
    assert [one for one in sorted(figures) if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.]\d)", measured)] == []


def test_the_example_of_the_readme_takes_at_most_fifteen_lines() -> None:
    [example] = [code for language, code in _FENCE.findall(READMES[0].read_text()) if language == "python"]
    assert len([line for line in example.splitlines() if line]) <= 15


def test_the_pictures_of_the_readme_differ_only_in_their_words() -> None:
    shapes = [
        re.findall(r"<(?:rect|path)[^>]*>", (ROOT / "docs" / "pictures" / name).read_text())
        for name in ("keystead.svg", "keystead.ja.svg", "keystead.ko.svg")
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert "prefers-color-scheme: dark" in (ROOT / "docs" / "pictures" / "keystead.svg").read_text()
