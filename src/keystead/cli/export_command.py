"""`keystead export`: keyspaces as JSON Schema or TypeScript, for programs in other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from keystead.cli import written_files
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json, MoreKeyspaces, Targets, named_keyspaces, run
from keystead.cli.terminal_language import say
from keystead.schema import Keyspace
from keystead.schema.export import json_schema, typescript, upstash_client


class ExportFormat(StrEnum):
    """Export formats."""

    JSON_SCHEMA = "json-schema"
    TYPESCRIPT = "typescript"
    UPSTASH = "upstash"


def _as_json_schema(found: Sequence[type[Keyspace]]) -> str:
    return json.dumps(json_schema(found), indent=2, ensure_ascii=False) + "\n"


_WRITERS: Final[dict[ExportFormat, Callable[[Sequence[type[Keyspace]]], str]]] = {
    ExportFormat.JSON_SCHEMA: _as_json_schema,
    ExportFormat.TYPESCRIPT: typescript,
    ExportFormat.UPSTASH: upstash_client,
}

_FORMAT_HELP = "JSON Schema 2020-12, a TypeScript module of types, or one with a typed client over @upstash/redis."
_OUT_HELP = "Write to this file instead of printing."

Format = Annotated[ExportFormat, typer.Option("--format", metavar="json-schema|typescript|upstash", help=_FORMAT_HELP)]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help=_OUT_HELP, show_default=False)]


def export(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    form: Format = ExportFormat.JSON_SCHEMA,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Export keyspaces as JSON Schema or TypeScript, for programs in other languages.

    One document has every family with its pattern, kind, role, lifetime and value type.

    Counters, and integers declared to exceed 2^53, are strings in TypeScript, whose numbers are not exact beyond that.

    [bold]Examples[/bold]

      keystead export myapp.keys:AppKeys

      keystead export myapp.keys --format typescript --out web/src/keys.ts

      keystead export myapp.keys --format upstash --out web/src/keys.ts

      keystead export upstash myapp.keys --out web/src/keys.ts

      keystead export login sharing --out keys.schema.json
    """
    form, targets = _format_in(targets or [], form)

    async def work() -> int:
        text = _WRITERS[form](named_keyspaces(targets, more))
        if out is not None:
            _write(text, out, as_json)
        elif as_json and form is not ExportFormat.JSON_SCHEMA:
            print_json({form.value: text})
        else:
            typer.echo(text, nl=False)
        return 0

    run(work)


def _format_in(targets: list[str], form: ExportFormat) -> tuple[ExportFormat, list[str]]:
    """The format, which may also be the first argument; and the keyspaces."""
    if not targets or targets[0] not in list(ExportFormat):
        return form, targets
    named = ExportFormat(targets[0])
    if form not in (ExportFormat.JSON_SCHEMA, named):
        raise typer.BadParameter(say("two formats: {one} and {other}", one=named, other=form))
    return named, targets[1:]


def _write(text: str, out: Path, as_json: bool) -> None:
    changed = bool(written_files.write({out: text}))
    if as_json:
        print_json({"file": str(out), "changed": changed})
    else:
        typer.echo(say("wrote {out}", out=out) if changed else say("{out} is up to date", out=out))
