"""Brings the message catalogues up to date with the code: `python scripts/messages.py`.

Each folder with a `locale` has one file for each language. New messages are added without a translation, unused ones
are removed; `tests/test_messages.py` lists what is still to translate.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import typer
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.pofile import read_po, write_po

from keystead.catalogue import LANGUAGES
from keystead.cli import _add_commands, app
from keystead.cli.flags import file_of, help_texts
from keystead.console.console_kit import KIT as CONSOLE
from keystead.http.refusals import CODES
from keystead.schema.finding import CODES as CODES_OF_FINDINGS
from keystead.server.reference_page import guarantee_texts
from keystead.stores.commands import TABLE
from keystead.stores.store_contract import Guarantees

PACKAGE: Final = Path(__file__).parents[1] / "src" / "keystead"
LANGUAGES_TO_TRANSLATE: Final = [one for one in LANGUAGES if one != "en"]
KEYWORDS: Final[dict[str, tuple[int, int] | None]] = {
    "say": None,
    "message": None,
    "plural": (1, 2),
    "say_plural": (1, 2),
}
_CLI: Final = PACKAGE / "cli"
METHODS: Final = {".py": "", ".html": "jinja2.ext:babel_extract", ".js": "javascript"}
_HEADER: Final = """\
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"

"""


def folders() -> list[Path]:
    """The folders with catalogues."""
    return sorted(path.parent for path in PACKAGE.rglob("locale") if path.is_dir())


def messages_of(folder: Path) -> Catalog:
    """All messages of the code in a folder."""
    found = Catalog()
    for path in _files(folder):
        if path.suffix == ".py":
            for own in _messages_in_python(path):
                found.add(own, locations=[(path.relative_to(folder).as_posix(), 1)])
            continue
        with path.open("rb") as file:
            method = METHODS[path.suffix]
            options = {"encoding": "utf-8"}
            for line, message, _, _ in extract(method, file, KEYWORDS, (), options):
                text = message
                if text and text != ("", ""):
                    found.add(text, locations=[(path.relative_to(folder).as_posix(), line)])
    for text, place in _DATA.get(folder.name, lambda: _messages_in_help(folder))():
        found.add(text, locations=[(place, 1)])
    return found


def _messages_in_python(path: Path) -> Iterator[str | tuple[str, str]]:
    """Also those within f-strings, which Babel finds only on some versions of Python."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    for node in sorted(nodes, key=lambda one: (getattr(one, "lineno", 0), getattr(one, "col_offset", 0))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in KEYWORDS:
            continue
        texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if KEYWORDS[name] is None and texts:
            yield texts[0]
        elif len(texts) == 2:
            yield texts[0], texts[1]


def _messages_in_help(folder: Path) -> Iterator[tuple[str, str]]:
    """The help of the commands that are written in a folder. The command line has what its kits share with it."""
    own = [command for command in _commands() if file_of(command).parent == folder]
    shared = set() if folder == _CLI else {text for text, _ in _messages_in_help(_CLI)}
    for command in own:
        yield from ((text, file_of(command).name) for text in help_texts(command) if text not in shared)


@cache
def _commands() -> list[Any]:
    if not app.registered_commands:
        _add_commands(["--help"])
    return list(_below(typer.main.get_command(app)))


def _below(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from _below(one)


def _files(folder: Path) -> Iterator[Path]:
    """The files with messages. The components of widgets have their own: they run on other sites."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in METHODS and "components" not in path.parts)


def _messages_in_data() -> Iterator[tuple[str, str]]:
    """Messages that are not arguments of a marker, because layers below the pages declare them."""
    for example in CONSOLE.examples:
        yield from ((text, "console/console_kit.py") for text in (CONSOLE.doc, example.label, example.doc))
    for _, sentence, heading in CODES.values():
        yield sentence, "http/refusals.py"
        yield heading, "http/refusals.py"
    for field in dataclasses.fields(Guarantees):
        for text in filter(None, guarantee_texts(field)):
            yield text, "stores/store_contract.py"
    for values in filter(None, map(get_args, get_type_hints(Guarantees).values())):
        yield from ((value, "stores/store_contract.py") for value in values if isinstance(value, str))
    for spec in TABLE.values():
        yield spec.summary, "stores/commands.py"
        yield spec.about, "stores/commands.py"


def _messages_of_findings() -> Iterator[tuple[str, str]]:
    for code in CODES_OF_FINDINGS.values():
        if code.tool == "doctor":
            yield code.title, "schema/finding.py"
            yield code.meaning, "schema/finding.py"


_DATA: Final[Mapping[str, Callable[[], Iterator[tuple[str, str]]]]] = {
    "server": _messages_in_data,
    "console": _messages_of_findings,
}


def read_catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file)


def updated(folder: Path, language: str) -> str:
    """The catalogue of a folder, with the messages of its code and the translations that it has."""
    path = folder / "locale" / f"{language}.po"
    known: Mapping[str, Message] = (
        {first_form(entry.id): entry for entry in read_catalogue(path) if entry.id} if path.is_file() else {}
    )
    new = Catalog(locale=language, fuzzy=False)
    for entry in messages_of(folder):
        if not entry.id:
            continue
        old = known.get(first_form(entry.id))
        string = "" if old is None else first_form(old.string or "")
        new.add(
            entry.id,
            (string,) if isinstance(entry.id, tuple | list) else string,
            locations=sorted(set(entry.locations)),
        )
    out = BytesIO()
    write_po(out, new, width=120, omit_header=True, include_lineno=False, sort_by_file=True)
    return _HEADER.format(language=language) + out.getvalue().decode()


def first_form(forms: str | tuple[str, ...] | list[str]) -> str:
    return forms if isinstance(forms, str) else forms[0]


def main() -> None:
    for folder in folders():
        for language in LANGUAGES_TO_TRANSLATE:
            path = folder / "locale" / f"{language}.po"
            path.write_text(updated(folder, language), encoding="utf-8")


if __name__ == "__main__":
    main()
