"""The pages of the guide: links, pictures, code blocks, sentences, and their number of words."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import yaml

from scripts import picture_record
from tests.servers.node_packages import node_with

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BY_HAND = sorted(DOCS.glob("*.md"))
GENERATED = sorted([*DOCS.glob("reference/*.md"), *DOCS.glob("keys/*.md")])
FRONT = [ROOT / name for name in ("README.md", "README.ja.md", "README.ko.md", "SECURITY.md", "CONTRIBUTING.md")]
TRANSLATED = [*DOCS.glob("ja/*.md"), *DOCS.glob("ko/*.md")]  # nobody reads a page in two languages: not counted below
PAGES = [*FRONT, *BY_HAND, *TRANSLATED, *GENERATED, *sorted(ROOT.glob("examples/*/README.md"))]
MOST_WORDS = 49_000  # of the pages written by hand, with their code, without figures and the bars of tables
MOST_WORDS_OF_A_SENTENCE = 30
MOST_KANA = 120
KANA = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
REPEATED_WORDS = 8  # a sentence this long is no phrase, and belongs in one place

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
LANGUAGES = {
    "python",
    "py",
    "sh",
    "bash",
    "console",
    "toml",
    "json",
    "yaml",
    "text",
    "js",
    "ts",
    "html",
    "mermaid",
    "ini",
}


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return BLOCK.sub("\n\n", page.read_text())


def links(page: Path) -> list[str]:
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", prose(page)))


def blocks(*languages: str, pages: Sequence[Path] = PAGES) -> Iterator[tuple[str, str]]:
    for page in pages:
        for found in BLOCK.finditer(page.read_text()):
            if found[2] in languages:
                yield f"{page.relative_to(ROOT)}: {found[3][:40]!r}", found[3]


def anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    missing = []
    for page in PAGES:
        for link in links(page):
            name, _, part = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if re.match(r"[a-z+]+:", link):
                continue
            if not target.exists() or (part and target.suffix == ".md" and part not in anchors(target)):
                missing.append(f"{page.relative_to(ROOT)}: {link}")
    assert missing == []


def test_every_picture_is_shown() -> None:
    shown = {
        (page.parent / link).resolve() for page in PAGES for link in links(page) if link.endswith((".svg", ".png"))
    }
    assert {one for one in (DOCS / "pictures").iterdir() if one.is_file()} - shown == set()


def test_no_page_has_changed_since_its_pictures_were_taken() -> None:
    """`python scripts/pictures.py` takes new ones, and records what they show; look at them."""
    groups = {picture_record.group_of(one) for one in (DOCS / "pictures").glob("*.png")}
    assert groups == {*picture_record.PACKAGES}
    assert list(picture_record.stale()) == []


def test_every_page_is_linked_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [page for page in (*BY_HAND, *DOCS.glob("reference/*.md")) if page.name != "index.md"]
    assert [page.name for page in pages if f"]({page.relative_to(DOCS)})" not in index] == []


def test_a_page_begins_with_a_heading_and_a_paragraph() -> None:
    wrong = [page.name for page in BY_HAND if not re.match(r"# \S[^\n]*\n\n[A-Z`*\[]", page.read_text())]
    assert wrong == []


def test_a_translated_page_has_the_code_and_the_links_of_the_original() -> None:
    """What a program prints (`text`) is translated, too: the tutorial is run in each language."""
    wrong = []
    for page in TRANSLATED:
        original = DOCS / page.name
        code = [
            [found[0] for found in BLOCK.finditer(one.read_text()) if found[2] != "text"] for one in (page, original)
        ]
        targets = [[(one.parent / link).resolve() for link in links(one)[2:]] for one in (page, original)]
        headings = [len(re.findall(r"^#+ ", prose(one), re.MULTILINE)) for one in (page, original)]
        wrong += [str(page)] if any(one != other for one, other in (code, targets, headings)) else []
    assert wrong == []


def test_every_code_block_names_its_language() -> None:
    assert [place for place, _ in blocks("")] == []
    used = {found[2] for page in PAGES for found in BLOCK.finditer(page.read_text())}
    assert used == LANGUAGES


def test_code_that_does_not_run_alone_is_at_least_valid() -> None:
    """Blocks of `python` run: see `test_project`. Those of `py` show a part of a program."""
    wrong = []
    for language, parse in (
        ("py", parse_python),
        ("toml", tomllib.loads),
        ("json", json.loads),
        ("yaml", yaml.safe_load),
        ("sh", parse_shell),
        ("bash", parse_shell),
    ):
        for place, code in blocks(language, pages=[page for page in PAGES if page not in GENERATED]):
            try:
                parse(code)
            except (ValueError, SyntaxError, ImportError, yaml.YAMLError) as error:
                wrong.append(f"{place}: {error}")
    assert wrong == []


def parse_python(code: str) -> None:
    """Its syntax; what it imports of Keystead must exist."""
    tree = compile(code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "keystead":
            for name in node.names:
                if not hasattr(import_module(str(node.module)), name.name):
                    import_module(f"{node.module}.{name.name}")


def parse_shell(code: str) -> None:
    done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SyntaxError(done.stderr)


def test_javascript_and_typescript_in_the_pages_is_valid() -> None:
    node, folder = node_with("upstash_clients")
    look = """
      const ts = require("typescript");
      const wrong = JSON.parse(require("fs").readFileSync(0)).flatMap(([place, code]) =>
        ts.transpileModule(code, { reportDiagnostics: true, fileName: "page.ts" }).diagnostics
          .map((one) => place + ": " + ts.flattenDiagnosticMessageText(one.messageText, " ")));
      process.stdout.write(JSON.stringify(wrong));
    """
    found = [*blocks("js", "ts")]
    assert len(found) > 3
    out = subprocess.check_output(
        [node, "--eval", look], input=json.dumps([*found, ["broken", "const = 1"]]), text=True, cwd=folder
    )
    wrong = json.loads(out)
    assert {one.partition(":")[0] for one in wrong} == {"broken"}, wrong


@cache
def command_tree() -> Any:
    from keystead.cli import _add_commands, app

    _add_commands(["--help"])
    return typer.main.get_command(app)


def unknown_words(arguments: list[str]) -> list[str]:
    """The flags and subcommands of a `keystead` command line that do not exist."""
    command = command_tree()
    context = typer.Context(command)
    unknown: list[str] = []
    for word in arguments:
        is_group, is_root = hasattr(command, "list_commands"), command is command_tree()
        if is_group and not is_root and command.get_command(context, word) is None:
            return unknown  # `keystead gateway` and `keystead console` do something themselves, too
        if word.startswith("-"):
            flag = word.partition("=")[0]
            known = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
            unknown += [] if flag in known | {"--help"} else [flag]
        elif is_group:
            if command.get_command(context, word) is None:
                return [word]
            command = command.get_command(context, word)
    return unknown


def test_every_shown_command_of_keystead_exists() -> None:
    wrong, checked = [], 0
    for place, code in blocks("sh", "bash"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition("  #")[0], comments=True) if line.startswith("keystead ") else []
            end = next((n for n, word in enumerate(words) if word in ("|", "&", "&&", ">", ";", "house")), len(words))
            checked += bool(words)
            wrong += [f"{place}: {word}" for word in unknown_words(words[1:end])]
    assert wrong == []
    assert checked > 50


def sentences(page: Path) -> list[str]:
    """Of the prose, the lists and the table cells, with each code span and each link as one word."""
    text = re.sub(r"^#.*$", "\n", prose(page), flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\|.*$", lambda row: row[0].replace("|", "\n\n"), text, flags=re.MULTILINE)
    return re.split(r"(?<=[.!?])[)*]*\s+|\n\s*\n|\n\s*- |\n\s*\d+\. ", text)


def test_a_sentence_has_at_most_thirty_words() -> None:
    """Korean separates words by spaces, too; Japanese has 30 words in about 120 letters."""
    read = [*FRONT, *BY_HAND, *TRANSLATED, *sorted(ROOT.glob("examples/*/README.md"))]
    found = [(page, " ".join(one.split())) for page in read for one in sentences(page)]
    long = [(str(page.relative_to(ROOT)), one) for page, one in found if len(one.split()) > MOST_WORDS_OF_A_SENTENCE]
    long += [
        (page.name, part) for page, one in found for part in one.split("。") if len(KANA.findall(part)) > MOST_KANA
    ]
    assert long == []


def test_no_page_repeats_a_sentence_of_another() -> None:
    pages_of: dict[str, set[str]] = {}
    for page in BY_HAND:
        for one in sentences(page):
            if len(one.split()) >= REPEATED_WORDS:
                pages_of.setdefault(" ".join(one.split()).rstrip("."), set()).add(page.name)
    assert {one: sorted(pages) for one, pages in pages_of.items() if len(pages) > 1} == {}


def test_no_line_ends_with_a_space() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    wrong = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text().split("\n"), 1)
        if line != line.rstrip()
    ]
    assert wrong == []


def test_the_guide_stays_short() -> None:
    words = [word for page in BY_HAND for word in page.read_text().split() if re.search(r"[A-Za-z]{2}", word)]
    assert len(words) < MOST_WORDS
