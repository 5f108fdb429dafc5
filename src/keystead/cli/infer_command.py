"""`keystead infer`: draft a keyspace from a live store, or from a hand-written key document."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from keystead.cli import written_files
from keystead.cli.billing import announce_reading
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import one_line, print_json
from keystead.cli.keyspace_arguments import Json, named_keyspaces, open_stores, require_database, run
from keystead.cli.priority import lower_priority
from keystead.cli.progress_bar import progress
from keystead.cli.terminal_language import plural, say
from keystead.errors import BadDeclaration
from keystead.schema import Keyspace
from keystead.schema.infer import Inferred, keys_module
from keystead.schema.infer import infer as draft_from
from keystead.schema.infer.difference import difference
from keystead.schema.infer.document import draft_document
from keystead.schema.lifetime import duration_ms

_URL_HELP = "The store to read, such as redis://localhost:6379/0. Nothing in it is changed."
_DOCUMENT_HELP = "Read a hand-written key document instead: Markdown or plain text, in English, Japanese or Korean."
_OUTPUT_HELP = "Write the draft to this file, which must not exist yet. [dim]\\[default: print it][/dim]"
_ALL_HELP = "Read every key. By default every key is counted, and a sample of each shape is read."
_WAIT_HELP = """How long to wait before deadlines are read again, such as 1m. The longer, the more sliding lifetimes are
recognized, because keys are used in between."""
_NAME_HELP = "The name of the keyspace."
_DIFF_HELP = """Compare with this file, or a keyspace such as myapp.keys:AppKeys, instead: print only what it does not
declare, or declares differently."""

_LONGEST = 5_000_000  # bytes of a document

Url = Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)]
Document = Annotated[Path | None, typer.Option("--document", metavar="FILE", help=_DOCUMENT_HELP, show_default=False)]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help=_OUTPUT_HELP, show_default=False)]
All = Annotated[bool, typer.Option("--all", metavar=NO_VALUE, help=_ALL_HELP)]
Wait = Annotated[str, typer.Option("--wait", metavar="DURATION", help=_WAIT_HELP)]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help=_NAME_HELP)]
Diff = Annotated[str | None, typer.Option("--diff", metavar="KEYSPACE", help=_DIFF_HELP, show_default=False)]


def infer(
    url: Url = None,
    document: Document = None,
    output: Output = None,
    all_keys: All = False,
    wait: Wait = "2s",
    name: Name = "AppKeys",
    diff: Diff = None,
    as_json: Json = False,
) -> None:
    """Draft a keys.py from a live store or a key document: patterns, kinds, value models, lifetimes, relations.

    A store is scanned while the application runs, without blocking it. Each family has a comment: how many keys it
    comes from, an example with masked ids, and how sure it is. No value is printed, but words that keys and
    enumerations consist of are.

    Of a document it reads tables, lists of keys, JSON examples and commands. Comments name the lines that a family
    comes from. What it does not understand is reported by line, not guessed.

    Read the draft, then follow `keystead guide adopt`. With --diff the exit code is 1 if the store or the document
    holds something that the file does not declare.

    [bold]Examples[/bold]

      keystead infer redis://localhost:6379/0 --output keys.py

      keystead infer redis://localhost:6379/0 --wait 5m --all

      keystead infer redis://localhost:6379/0 --diff keys.py

      keystead infer --document docs/redis-keys.md --output keys.py
    """
    if (url is None) is (document is None):
        fail(say("name a store or a document: keystead infer URL, or keystead infer --document FILE"), USAGE_ERROR)
    if not name.isidentifier() or not name.isascii():
        fail(say("{name} is not a class name; write one such as AppKeys", name=repr(name)), USAGE_ERROR)
    if output is not None and output.exists():
        fail(
            say(
                "{output} exists already; compare with --diff {output}, or name another file",
                output=output,
            ),
            USAGE_ERROR,
        )
    result = _Result(output, None if diff is None else _declared(diff), as_json)
    if document is not None:
        _read_document(document, result, name)
    elif url is not None:
        require_database(url, say("name another store"))
        options = {"every_key": all_keys, "name": name}
        wait_s = _wait_s(wait)
        run(lambda: _infer(url, result, options, wait_s))


@dataclass(frozen=True)
class _Result:
    """What becomes of a draft: it is printed, written to a file, or compared with keyspaces."""

    output: Path | None
    declared: Sequence[type[Keyspace]] | None
    as_json: bool


def _read_document(path: Path, result: _Result, name: str) -> None:
    try:
        if path.stat().st_size > _LONGEST:
            fail(
                say(
                    "{path} is longer than {longest} MB; name the key document alone",
                    path=path,
                    longest=_LONGEST // 1_000_000,
                ),
                USAGE_ERROR,
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else say("it is not UTF-8 text")
        fail(say("{path} cannot be read: {reason}", path=path, reason=reason), USAGE_ERROR)
    found = draft_document(text, name=name, title=path.name)
    for line, problem in found.problems:
        typer.echo(one_line(f"{path}:{line}: {problem}" if line else problem), err=True)
    if not found.draft.families:
        fail(
            say(
                "{path} describes no keys that could be read; see `keystead guide adopt` for what is understood",
                path=path,
            ),
            FAILED,
        )
    inferred = Inferred(found.draft, len(found.draft.families))
    if code := _finish(inferred, result, str(path)):
        raise typer.Exit(code)


def _wait_s(text: str) -> float:
    if text in ("0", "0s"):
        return 0
    try:
        return duration_ms(text, "--wait") / 1000
    except BadDeclaration as error:
        fail(str(error), USAGE_ERROR)


async def _infer(url: str, result: _Result, options: dict[str, Any], wait_s: float) -> int:
    lower_priority()
    async with open_stores([url]) as by_role:
        store = by_role["default"]
        await announce_reading(store, part=True)
        with progress(say("reading")) as show:
            found = await draft_from(
                store,
                between=lambda: asyncio.sleep(wait_s),
                on_progress=lambda now: show(now.examined, now.total),
                **options,
            )
    return _finish(found, result, plural("{count} key", "{count} keys", found.examined))


def _finish(found: Inferred, result: _Result, source: str) -> int:
    """Print or write the draft, or its differences from what is declared. Returns the exit code."""
    if result.declared is not None:
        lines = list(difference(found, result.declared, tagged=found.has_slots))
        if result.as_json:
            print_json({"examined": found.examined, "differences": lines})
        for line in () if result.as_json else lines:
            typer.echo(one_line(line))
        return FAILED if lines else 0
    text = keys_module(found.draft)
    if result.output is not None:
        written_files.write({result.output: text})
    if result.as_json:
        file = None if result.output is None else str(result.output)
        families = len(found.draft.families)
        print_json({"examined": found.examined, "families": families, "file": file, "source": text})
    elif result.output is None:
        typer.echo(text, nl=False)
    else:
        families_text = plural("{count} family", "{count} families", len(found.draft.families))
        typer.echo(
            say(
                "wrote {output}: {families} from {source}. Read it, then follow `keystead guide adopt`",
                output=result.output,
                families=families_text,
                source=source,
            )
        )
    return 0


def _declared(diff: str) -> list[type[Keyspace]]:
    """The keyspaces to compare with: those of a file, or of a name as in any other command."""
    path = Path(diff)
    return _keyspaces_in(path) if path.suffix == ".py" else named_keyspaces([diff])


def _keyspaces_in(path: Path) -> list[type[Keyspace]]:
    """The keyspaces that a file declares. It is imported, as any command with a keyspace does."""
    spec = importlib.util.spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        fail(say("there is no Python file {path}", path=path), USAGE_ERROR)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        fail(
            say("{path} cannot be imported: {name}: {error}", path=path, name=type(error).__name__, error=error),
            USAGE_ERROR,
        )
    found = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Keyspace) and one.__module__ == path.stem
    ]
    return found or fail(
        say("{path} declares no keyspace (a class derived from keystead.Keyspace)", path=path), USAGE_ERROR
    )
