"""`keystead docs`: generate key documents, and check that the committed ones are up to date."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from keystead.cli import written_files
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import (
    NAMED,
    Json,
    MoreKeyspaces,
    Targets,
    all_targets,
    keyspaces,
    named_keyspaces,
    run,
)
from keystead.cli.terminal_language import say
from keystead.schema import Keyspace
from keystead.schema.docs import document, html, html_index, in_words, is_made, markdown, markdown_index


class DocumentFormat(StrEnum):
    """Formats of a key document."""

    MARKDOWN = "markdown"
    HTML = "html"


class _Writer(NamedTuple):
    """How the documents of one format are generated and named."""

    suffix: str
    page: Callable[[type[Keyspace]], str]
    index_file: str
    index_page: Callable[[Mapping[str, type[Keyspace]]], str]


_WRITERS: Final = {
    DocumentFormat.MARKDOWN: _Writer(".md", markdown, "README.md", markdown_index),
    DocumentFormat.HTML: _Writer(".html", html, "index.html", html_index),
}

_FORMAT_HELP = "GitHub Markdown, or self-contained HTML pages."
_OUT_HELP = "Write a file for each keyspace, and an index, into this folder."
_CHECK_HELP = (
    "Write nothing, and list stale, missing and left-over files of the folder. The exit code is 1 if there are any."
)

Format = Annotated[DocumentFormat, typer.Option("--format", metavar="markdown|html", help=_FORMAT_HELP)]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help=_OUT_HELP, show_default=False)]
Check = Annotated[bool, typer.Option("--check", metavar=NO_VALUE, help=_CHECK_HELP)]


def docs(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    form: Format = DocumentFormat.MARKDOWN,
    out: Out = None,
    check: Check = False,
    as_json: Json = False,
) -> None:
    """Print the key document of a keyspace: every key with its value, lifetime, relations and verbs.

    It is generated from declarations; no store is opened. Commit it, and run the same command with --check in CI.

    [bold]Examples[/bold]

      keystead docs myapp.keys:AppKeys

      keystead docs myapp.keys --format html > keys.html

      keystead docs myapp.keys --out docs/keys

      keystead docs myapp.keys --out docs/keys --check
    """

    async def work() -> int:
        if out is None:
            if check:
                fail(say("--check compares a folder: add --out FOLDER"), USAGE_ERROR)
            _print(named_keyspaces(targets, more), form, as_json)
            return 0
        files = _files(keyspaces(targets, more), form, out)
        options = [] if form is DocumentFormat.MARKDOWN else ["--format", form.value]
        again = shlex.join(["keystead", "docs", *all_targets(targets, more), *options, "--out", str(out)])
        return _compare(files, form, out, again, as_json) if check else _write(files, form, out, as_json)

    run(work)


def _print(found: Sequence[type[Keyspace]], form: DocumentFormat, as_json: bool) -> None:
    if as_json:
        print_json([document(one).as_json() for one in found])
    elif len(found) == 1:
        typer.echo(_WRITERS[form].page(found[0]), nl=False)
    else:
        names = ", ".join(_short_name(one) or _place(one) for one in found)
        fail(
            say("only one document can be printed: name one of {names}, or use --out FOLDER", names=names), USAGE_ERROR
        )


def _files(found: Sequence[type[Keyspace]], form: DocumentFormat, out: Path) -> dict[Path, str]:
    """The content of the folder. Exits with code 2 if two documents would have the same file."""
    writer = _WRITERS[form]
    named: dict[str, type[Keyspace]] = {}
    for one in found:
        file = f"{_stem(one)}{writer.suffix}"
        if file in named or file == writer.index_file:
            other = say("that of {place}", place=_place(named[file])) if file in named else say("the index")
            fail(
                say(
                    "{out} would be the document of {place} and {other}; write them into two folders",
                    out=out / file,
                    place=_place(one),
                    other=other,
                ),
                USAGE_ERROR,
            )
        named[file] = one
    pages = {out / file: writer.page(one) for file, one in named.items()}
    return {**pages, out / writer.index_file: writer.index_page(named)}


def _stem(keyspace: type[Keyspace]) -> str:
    """The short name, or that of the class: `AppKeys` -> `app-keys`."""
    return _short_name(keyspace) or "-".join(in_words(keyspace.__name__).lower().split())


def _short_name(keyspace: type[Keyspace]) -> str | None:
    """The name of the kit or server component whose only keyspace this is; None for others."""
    name = next((name for name, module in NAMED.items() if module == keyspace.__module__), None)
    return name if name and named_keyspaces([name]) == [keyspace] else None


def _place(keyspace: type[Keyspace]) -> str:
    return f"{keyspace.__module__}:{keyspace.__qualname__}"


def _find_leftovers(files: Mapping[Path, str], form: DocumentFormat, out: Path) -> list[Path]:
    """Generated documents in the folder whose keyspace is gone. Hand-written files are not among them."""
    if not out.is_dir():
        return []
    others = sorted(set(out.glob(f"*{_WRITERS[form].suffix}")) - set(files))
    return [path for path in others if is_made(written_files.read(path) or "")]


def _write(files: Mapping[Path, str], form: DocumentFormat, out: Path, as_json: bool) -> int:
    changed, left_over = written_files.write(files), _find_leftovers(files, form, out)
    if as_json:
        print_json({"files": _texts(files), "changed": _texts(changed), "left_over": _texts(left_over)})
        return 0
    for path in changed:
        typer.echo(say("wrote {path}", path=path))
    _print_leftovers(left_over)
    typer.echo(say("{files} files in {out}, {changed} changed", files=len(files), out=out, changed=len(changed)))
    return 0


def _compare(files: Mapping[Path, str], form: DocumentFormat, out: Path, again: str, as_json: bool) -> int:
    current = {path: written_files.read(path) for path in files}
    missing = [path for path, text in current.items() if text is None]
    stale = [path for path, text in current.items() if text is not None and text != files[path]]
    left_over = _find_leftovers(files, form, out)
    if as_json:
        print_json(
            {"stale": _texts(stale), "missing": _texts(missing), "left_over": _texts(left_over), "command": again}
        )
    else:
        _print_compared(stale, missing, left_over, out, again, len(files))
    return FAILED if stale or missing or left_over else 0


def _print_compared(
    stale: Sequence[Path], missing: Sequence[Path], left_over: Sequence[Path], out: Path, again: str, count: int
) -> None:
    for path in stale:
        typer.echo(say("stale: {path}", path=path))
    for path in missing:
        typer.echo(say("missing: {path}", path=path))
    _print_leftovers(left_over)
    if stale or missing:
        typer.echo(say("Run: {again}", again=again))
    elif not left_over:
        typer.echo(say("{count} files in {out} are up to date", count=count, out=out))


def _print_leftovers(paths: Sequence[Path]) -> None:
    for path in paths:
        typer.echo(say("left over: {path} (no keyspace generates it: delete it)", path=path))


def _texts(paths: Any) -> list[str]:
    return [str(path) for path in paths]
