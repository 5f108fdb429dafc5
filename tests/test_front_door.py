"""The README in three languages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
READMES = [ROOT / name for name in ("README.md", "README.ja.md", "README.ko.md")]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
TO = "\N{EN DASH}"
_FIGURE = re.compile(r"\d+\.\d+")


def text_only(document: str) -> str:
    return _FENCE.sub("", document)


def table_shapes(document: str) -> list[int]:
    return [line.count("|") for line in text_only(document).splitlines() if line.startswith("|")]


def heading_levels(document: str) -> list[str]:
    return re.findall(r"^#+ ", text_only(document), re.MULTILINE)


def links(document: str) -> list[str]:
    """All but those to the other languages, in an order that does not depend on the language."""
    found = [link for link in _LINK.findall(document) if not link.startswith(("README", "docs/pictures"))]
    return sorted(re.sub("^docs/(ja|ko)/", "docs/", link) for link in found)


def test_the_readmes_have_the_same_headings_code_links_tables_and_figures() -> None:
    english, *others = (path.read_text() for path in READMES)
    for other in others:
        assert _FENCE.findall(other) == _FENCE.findall(english)
        assert heading_levels(other) == heading_levels(english)
        assert table_shapes(other) == table_shapes(english)
        assert sorted(_FIGURE.findall(text_only(other))) == sorted(_FIGURE.findall(text_only(english)))
        assert links(other) == links(english)


# The figures of a row of "Why not", in order: the row of the benchmarks, and which of its figures.
COMPARED: dict[str, list[tuple[str, str, int]]] = {
    "redis-py": [("Redis 7.0, 32 tasks, GET", "redis-py", 0), ("Redis 7.0, 1 task, GET", "redis-py", 0)],
    "a Lua script by hand": [("Redis, 32 tasks", "", 0), ("Redis, 1 task", "", 0)],
    "plain `sqlite3`": [("SQLite, 1 task, GET", "sqlite3", 0), ("SQLite, 32 tasks, SET", "sqlite3", 0)],
    "a table by hand, with psycopg": [
        ("session data in PostgreSQL", "psycopg", 0),
        ("session data in PostgreSQL", "psycopg", 1),
        ("session data in PostgreSQL, the same, 16 tasks", "psycopg", 0),
        ("session data in PostgreSQL, the same, 16 tasks", "psycopg", 1),
    ],
    "the sessions of Django": [
        ("session data in PostgreSQL", "Django", 0),
        ("session data in PostgreSQL, the same, 16 tasks", "Django", 0),
        ("Django sessions on Redis, read and save", "django-redis, `cache`", 0),
        ("Django sessions on Redis, read and save", "django-redis, `cache`", 1),
    ],
    "limits": [
        ("limits on Redis, 32 tasks, fixed window", "limits", 0),
        ("limits on Redis, 32 tasks, sliding window", "limits", 0),
    ],
    "cashews": [
        ("cache on Redis, 32 tasks", "cashews", 0),
        ("cache on Redis, 32 tasks", "cashews", 1),
    ],
    "a hand-written FastAPI route": [("`GET /api/visit`", "FastAPI", 0), ("`GET /api/visit`", "FastAPI", 1)],
}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def measured_rows() -> list[tuple[str, str, list[tuple[float, float]]]]:
    """What, against what, and the figures as times as fast. `the same` is filled in from the row above it."""
    found, subject = [], ""
    for row in (ROOT / "docs" / "benchmarks.md").read_text().splitlines():
        if not row.startswith("|") or len(cells(row)) < 4:
            continue
        what, against, result, *_ = cells(row)
        if what.startswith("the same"):
            what = f"{subject}, {what}"
        else:
            subject = what.partition(":")[0]
        if re.fullmatch(rf"[\d.,{TO}]+ µs.*", against):  # the table of procedures: ours, by hand, times as fast
            ours, theirs = figures_of(against)[0], figures_of(result)[0]
            found.append((what, "", [(theirs[0] / ours[1], theirs[1] / ours[0])]))
            continue
        is_time = bool(re.search(r"\d t\b", result))
        found.append(
            (what, against, [(1 / most, 1 / least) if is_time else (least, most) for least, most in figures_of(result)])
        )
    return found


def figures_of(text: str) -> list[tuple[float, float]]:
    return [(float(least), float(most or least)) for least, most in re.findall(rf"(\d[\d.]*)(?:{TO}(\d[\d.]*))?", text)]


def figure(what: str, against: str, number: int) -> tuple[float, float]:
    subject, _, same = what.partition(", the same")
    for one, other, figures in measured_rows():
        if one.startswith(subject) and (not same or one.endswith(f"the same{same}")) and other.startswith(against):
            return figures[number]
    raise AssertionError(f"the benchmarks have no row {what!r} against {against!r}")


def test_every_figure_of_the_readme_is_that_of_its_row_of_the_benchmarks() -> None:
    """Times the time becomes times as fast: 0.85 to 0.88 t are 1.1 to 1.2."""
    comparison = READMES[0].read_text().partition("## Why not")[2].partition("## ")[0]
    rows = [cells(row) for row in comparison.splitlines() if row.startswith("|")][2:]
    assert [row[0] for row in rows] == list(COMPARED)
    wrong = []
    for name, _, shown in rows:
        figures = [
            figures_of(text)[0]
            for text in re.findall(rf": ([\d.{TO}]+)", shown.replace("read ", ": ").replace("write ", ": "))
        ]
        assert len(figures) == len(COMPARED[name]), name
        for own, source in zip(figures, COMPARED[name], strict=True):
            exact = figure(*source)
            if any(abs(one - other) > max(0.05 * other, 0.006) for one, other in zip(own, exact, strict=True)):
                wrong.append((name, own, source, exact))
    assert wrong == []


def test_the_readme_has_the_parts_of_a_front_door() -> None:
    """One sentence, one picture, two commands, one example, two tables, and at most ten links to go on."""
    document = READMES[0].read_text()
    assert len(re.findall(r"^!\[", document, re.MULTILINE)) == 1
    commands, *_ = [code.splitlines() for language, code in _FENCE.findall(document) if language == "sh"]
    assert [command.split()[:2] for command in commands] == [["make", "serve"], ["make", "test"]]
    assert len(re.findall(r"^\|---", document, re.MULTILINE)) == 2
    assert len(_LINK.findall(document.partition("## More")[2])) <= 10
    server = (ROOT / "docs" / "server.md").read_text().partition("## Files")[2].partition("## ")[0]
    left = {one for one in re.findall(r"`(keystead\.[\w./]+)`", server) if "-" not in one and "rm" not in one}
    assert len(left) == 4
    assert [one for one in left if f"`{one}`" not in document] == []


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
