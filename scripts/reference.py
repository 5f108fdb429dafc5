"""Generate docs/api.md, docs/commands.md, docs/errors.md and docs/findings.md from the code, and tables in other pages.

`--check` only reports stale pages.
"""

from __future__ import annotations

import inspect
import json
import sys
from itertools import groupby
from pathlib import Path
from textwrap import dedent

from pydantic import BaseModel

import keystead
from keystead import Keyspace, errors
from keystead.parts import sessions
from keystead.schema.finding import CODES, Code
from keystead.schema.lifetime import in_words
from keystead.stores.commands import TABLE, Spec
from keystead.stores.derived import DERIVED

DOCS = Path(__file__).parent.parent / "docs"


def commands() -> str:
    lines = [
        "# Commands",
        "",
        "All commands of a store, with the semantics of Redis 7. This page is generated from the table in",
        "`keystead.stores.commands` by `scripts/reference.py`.",
        "",
    ]
    lines += _command_tables(TABLE, "##")
    lines += [
        "A lifetime of zero or less is always an error, also for `EXPIRE`: to remove a key, use `DEL`. `SCAN` works on",
        "one server only; `store.scan` works everywhere.",
        "",
        "## Derived commands",
        "",
        "Commands that other Redis clients send. The stores do not have them: `keystead.stores.derived` makes them of",
        "the commands above, with the same semantics on every store. `run_derived(store, commands)` runs a pipeline of",
        "both, and `derive(command)` returns what one of them is made of. Here `EXPIRE` with zero or less deletes the",
        "key.",
        "",
        "Those that need a value before they can write (`APPEND`, `RENAME`, `SPOP` and others) read it first, write",
        "only if it is unchanged, and start over otherwise. They are atomic, and can be part of a transaction through",
        "the [gateway](gateway.md). `SETRANGE` adds at most 16 MiB of zeros, and `SRANDMEMBER` returns at most",
        "1,000,000 repeated members.",
        "`RENAME` and `COPY` take any key but a stream. `HSCAN`, `SSCAN` and `ZSCAN` return everything on the first",
        "page.",
        "",
        *_command_tables(DERIVED, "###"),
    ]
    return "\n".join(lines)


def _command_tables(table: dict[str, Spec], level: str) -> list[str]:
    order = list(dict.fromkeys(spec.about for spec in table.values()))
    in_order = sorted(table.values(), key=lambda spec: order.index(spec.about))
    lines = []
    for about, group in groupby(in_order, key=lambda spec: spec.about):
        lines += [f"{level} {about}", "", "| command | reply | |", "|---|---|---|"]
        for spec in group:
            usage = spec.usage.replace("|", "\\|")
            lines.append(f"| `{usage}` | {spec.summary} | {'writes' if spec.writes else 'reads'} |")
        lines.append("")
    return lines


def error_list() -> str:
    lines = [
        "# Errors",
        "",
        "All errors of Keystead, with their stable `code`. This page is generated from `keystead.errors` by",
        "`scripts/reference.py`.",
        "",
        "| code | class | is a | meaning |",
        "|---|---|---|---|",
    ]
    for name, cls in inspect.getmembers(errors, inspect.isclass):
        if cls.__module__ == errors.__name__:
            meaning = " ".join((cls.__dict__.get("__doc__") or "").split("\n\n")[0].split())
            lines.append(f"| `{cls.code}` | `{name}` | `{cls.__base__.__name__}` | {meaning} |")
    return "\n".join([*lines, ""])


def findings() -> str:
    lines = [
        "# Findings",
        "",
        "All findings of `keystead check` and `keystead doctor`, with their stable codes. The",
        "[write guard](write_guard.md) refuses writes with the codes of the doctor. This page is generated from",
        "`keystead.schema.finding` by `scripts/reference.py`.",
        "",
    ]
    for tool, about in FINDERS.items():
        codes = [code for code in CODES.values() if code.tool == tool]
        lines += [f"## keystead {tool}", "", about, "", "| code | | |", "|---|---|---|"]
        lines += [f"| [`{code.name}`](#{code.name}) | {code.severity} | {code.title} |" for code in codes]
        lines += ["", *(line for code in codes for line in _finding(code))]
    return "\n".join(lines)


FINDERS = {
    "check": "Checks declarations only. Errors and warnings both make the exit code 1.",
    "doctor": """\
Checks a live store, and repairs it with `--fix`. Errors and warnings both make the exit code 1.

It never harms a healthy store:

- Naming a kit or a keyspace includes the keyspaces of its parts (`part_keyspaces`). A key that any kit or the server
  knows is never unknown; if its keyspace was not named, it is counted and left alone.
- `--fix` examines first and prints its plan, by code and family. Each repair is one step that takes effect only if the
  finding still holds.
- Unreadable content is set aside for 30 days, and `keystead doctor --restore KEY` restores it. Setting aside more than
  1 % of a family, or with `--set-aside-unknown` more than 1 % of all keys, needs `--yes`. On a terminal it asks;
  otherwise that part is skipped, the rest is repaired, and the exit code is 1.
- Orphans, mappings to missing keys, and records that an admitting index does not list are deleted without a copy.
  Deleting more than 1 % of a family needs `--yes` in the same way.
- If not one key of a family has its owner, or not one leads to an existing key, and there are more than 10, the store
  or the pattern of the other family is wrong, not the keys: none of them is deleted, not even with `--yes`. Correct
  `--store`; if the owners are really gone, delete the keys by hand.
- If not one sealed value of a family opens, the key is wrong, not the values: the doctor stops, repairs nothing, and
  exits with code 2. The keys come from `KEYSTEAD_SEAL_KEYS`, or `seal_keys` in the secrets file.

| exit code | |
|---|---|
| 0 | no findings, or all were repaired |
| 1 | findings are left |
| 2 | usage error, or wrong seal keys |""",
}


def _finding(code: Code) -> list[str]:
    example = [f"```{'py' if code.tool == 'check' else 'text'}", *code.example.splitlines(), "```"]
    return [
        *(f"### {code.name}", "", f"**{code.title}** ({code.severity}). {code.meaning}", ""),
        *("What to do: " + code.remedy, "", *example, ""),
    ]


def presets() -> str:
    """docs/sessions.md with the current table of policies."""
    named = {name: getattr(sessions, name) for name in ("AAL1", "AAL2", "AAL3")}
    lines = ["| policy | `idle` | `absolute` | `cap` | `at_cap` | `grace` |", "|---|---|---|---|---|---|"]
    for name, policy in {**named, "Policy()": sessions.Policy()}.items():
        idle, absolute, grace = map(in_words, (policy.idle_ms, policy.absolute_ms, policy.grace_ms))
        lines.append(f"| `{name}` | {idle} | {absolute} | {policy.cap} | `{policy.at_cap}` | {grace} |")
    before, mark, rest = (DOCS / "sessions.md").read_text().partition("<!-- presets -->\n")
    _, end, after = rest.partition("<!-- presets end -->\n")
    return "".join([before, mark, "\n", *(f"{line}\n" for line in lines), "\n", end, after])


def api() -> str:
    """docs/api.md: what `keystead` exports."""
    lines = [
        "# Public API",
        "",
        "The names that an application imports from `keystead`. This page is generated from their docstrings by",
        "`scripts/reference.py`. Errors are in [errors](errors.md). Names of `keystead.schema`, `keystead.stores` and",
        "the modules of `keystead.parts` are described on the page of their feature.",
        "",
    ]
    for name in sorted(keystead.__all__, key=str.lower):
        lines += [f"## {name}", "", *_signature(name, getattr(keystead, name)), *_contract(getattr(keystead, name)), ""]
    return "\n".join(lines)


def _signature(name: str, what: object) -> list[str]:
    if not callable(what) or (inspect.isclass(what) and issubclass(what, (Exception, Keyspace, BaseModel))):
        return []
    try:
        parameters = inspect.signature(what)
    except (TypeError, ValueError):
        return []
    shown = ", ".join(_parameter(one) for one in parameters.parameters.values() if not one.name.startswith("_"))
    return ["```py", f"{name}({shown})", "```", ""]


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    has_default = isinstance(one.default, (str, int, float, bool, type(None)))
    if one.default is one.empty:
        return f"{stars}{one.name}"
    if not has_default:
        return f"{one.name}=..."
    return f"{one.name}={json.dumps(one.default) if isinstance(one.default, str) else one.default}"


def _contract(what: object) -> list[str]:
    """The docstring: paragraphs as text, what is indented as code."""
    lines: list[str] = []
    for paragraph in (inspect.getdoc(what) or "").split("\n\n"):
        is_code = all(line.startswith(" ") for line in paragraph.splitlines())
        is_list = any("   " in line.strip() for line in paragraph.splitlines())
        lines += ["```text", *dedent(paragraph).splitlines(), "```", ""] if is_code or is_list else [paragraph, ""]
    return lines[:-1]


PAGES = {
    "api.md": api,
    "commands.md": commands,
    "errors.md": error_list,
    "findings.md": findings,
    "sessions.md": presets,
}


def main() -> int:
    stale = [name for name, page in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != page()]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/{name} is stale; run: python scripts/reference.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name]())
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
