"""Generate the pages of docs/reference/ from the code, and tables in other pages.

`--check` only reports stale pages.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import chdir
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import keystead
from keystead import KeyRing, Keyspace, errors
from keystead.cli import _add_commands, app
from keystead.http import refusals
from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS, Action, Call, Endpoint
from keystead.kits.widgets.routes.requests import names_of
from keystead.parts import sessions
from keystead.schema.finding import CODES, Code
from keystead.schema.lifetime import in_words
from keystead.server import Settings, create_app
from keystead.server.kit_loading import load_kits
from keystead.server.metrics import METRICS
from keystead.stores.commands import TABLE, Spec
from keystead.stores.derived import DERIVED

DOCS = Path(__file__).resolve().parent.parent / "docs"


# Names of commands, why the stores do not have them, and what to use.
LEFT_OUT = (
    ("BLPOP BRPOP BLMOVE BZPOPMIN WAIT PSUBSCRIBE MONITOR", "they wait, and others share the connection",
     "a subscription, then a read"),
    ("WATCH MULTI EXEC SELECT AUTH CLIENT", "state of a connection, which all callers share",
     "`atomically` with guards; `/multi-exec`"),
    ("XREAD XGROUP XREADGROUP XACK XCLAIM XINFO", "they block, or keep the state of consumer groups beside the data",
     "`XRANGE` from the last id"),
    ("LMPOP ZMPOP SORT ZUNION ZUNIONSTORE ZINTER ZDIFF", "one step over many keys, computed by the engine",
     "`LPOP`, `ZPOPMIN`, `SUNION`, or a pipeline"),
    ("ZRANGEBYLEX ZLEXCOUNT ZRANDMEMBER", "sorted sets are ordered by a score that is declared", "`ZRANGE`"),
    ("SETBIT GETBIT BITCOUNT BITFIELD PFADD PFCOUNT GEOADD GEOSEARCH",
     "values that only the engine can read: no model fits them, and no check", "a set, or a sorted set"),
    ("HEXPIRE HTTL HGETDEL HGETEX", "a lifetime belongs to a key, and most engines have none for fields",
     "one key for each"),
    ("JSON.SET JSON.GET JSON.MGET", "a module that most servers do not have; values are JSON text already",
     "`SET` of the whole value"),
    ("RANDOMKEY OBJECT DUMP RESTORE INFO", "about one engine, or in its own format",
     "`SCAN`, `keystead doctor`, `keystead backup`"),
    ("FLUSHDB FLUSHALL SWAPDB CONFIG", "one request could delete or change everything", "`SCAN` and `DEL`"),
    ("EVAL EVALSHA FCALL", "only Redis and Valkey run Lua", "`atomically`; a token with access `scripts`"),
)  # fmt: skip


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
        "A lifetime of zero or less is always an error, also for `EXPIRE`: to remove a key, use `DEL`. In a",
        "cluster a cursor of `SCAN` is refused after slots have moved: begin again.",
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
        "the [gateway](../gateway.md). `SETRANGE` adds at most 16 MiB of zeros, and `SRANDMEMBER` returns at most",
        "1,000,000 repeated members.",
        "`RENAME` and `COPY` take any key but a stream. `HSCAN`, `SSCAN` and `ZSCAN` return everything on the first",
        "page.",
        "",
        *_command_tables(DERIVED, "###"),
        "## Commands that are left out",
        "",
        "No kind of a key document needs them, or not every store could keep them. The gateway answers them with",
        "`ERR Command is not available`. On Redis and Valkey an administrator's token passes most of them through.",
        "",
        "| left out | why | instead |",
        "|---|---|---|",
        *(
            f"| {' '.join(f'`{name}`' for name in names.split())} | {why} | {instead} |"
            for names, why, instead in LEFT_OUT
        ),
        "",
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
        "[write guard](../write_guard.md) refuses writes with the codes of the doctor. This page is generated from",
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
    """docs/reference/api.md: what `keystead` exports."""
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


def settings() -> str:
    """docs/reference/settings.md: the settings of the server and of each kit."""
    lines = [
        "# Settings of the server and the kits",
        "",
        "All settings, with their defaults. [The server](../server.md#settings) says where they are read from and",
        "which source wins. This page is generated from the settings models by `scripts/reference.py`.",
        "",
        "## Server",
        "",
        "At the top of `keystead.toml`, or `KEYSTEAD_…` in the environment.",
        "",
        *_setting_table(Settings),
    ]
    for kit in load_kits(Settings(store="memory://")):
        if not kit.settings.model_fields:
            continue
        place = f"`[{kit.name}]` in `keystead.toml`, or `KEYSTEAD_{kit.name.upper()}__…` in the environment."
        lines += ["", f"## {kit.name}", "", place, "", *_setting_table(kit.settings)]
        if kit.environment:
            lines += ["", "| environment | setting |", "|---|---|"]
            lines += [f"| `{name}` | `{setting}` |" for name, setting in kit.environment.items()]
    return "\n".join([*lines, ""])


def _setting_table(model: type[BaseModel]) -> list[str]:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name != "tables":
            lines.append(f"| `{name}` | {_default(field)} | {_meaning(field)} |")
    return lines


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|").replace("](", "](../")


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None or field.default in (None, "", (), {}):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def command_line() -> str:
    """docs/reference/cli.md: the help of every command."""
    lines = [
        "# The command line: every command and option",
        "",
        "As printed by `keystead COMMAND --help`. This page is generated by `scripts/reference.py`.",
        "",
    ]
    _add_commands(["--help"])
    for path, command in _commands_below(typer.main.get_command(app), ("keystead",)):
        usage = " ".join([*path, *command.collect_usage_pieces(typer.Context(command))])
        lines += [f"## {' '.join(path)}", "", "```text", usage, "```", "", *_help(command.help or ""), ""]
        shown = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        if shown:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [
                f"| `{', '.join([*one.opts, *one.secondary_opts])}` | {_plain(one.help or '')} |" for one in shown
            ]
            lines.append("")
    return "\n".join(lines)


def _commands_below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from _commands_below(command.get_command(context, name), (*path, name))


_MARKUP = re.compile(r"(?<!\\)\[/?[a-z ]+\]")


def _plain(text: str) -> str:
    """Help without the markup of Rich, in one line."""
    text = _MARKUP.sub("", text).replace("\\[", "[")
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _help(text: str) -> list[str]:
    """The paragraphs of a help text; what is indented, or begins with the program, is code."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        plain = _plain(paragraph)
        if plain in ("", "\x08"):
            continue
        lines += ["```sh", plain.replace("\\", ""), "```", ""] if plain.startswith("keystead ") else [plain, ""]
    return lines[:-1]


def http_api() -> str:
    """docs/reference/http.md: the routes of the server and of each kit, as in their OpenAPI documents."""
    lines = [
        "# HTTP API: routes of the server and the kits",
        "",
        "Each route with what it takes and returns. `?`: optional. A running server shows the same at `/docs`, with",
        "types and a form. [The server](../server.md#errors) has the format of errors. This page is generated",
        "from the OpenAPI documents by `scripts/reference.py`.",
    ]
    settings = Settings(store="memory://", seal_keys=f"docs:{KeyRing.new_key()}", public_url="https://example.com")
    everywhere = create_app(settings, []).openapi()["paths"]
    lines += ["", "## Server", "", *_route_table(create_app(settings, []).openapi(), {})]
    lines += ["", "## Errors", "", "Of all routes. The kits add codes of their own.", ""]
    lines += ["| code | status | sentence |", "|---|---|---|"]
    # Error pages link to their code.
    lines += [
        f'| <a id="{code}"></a>`{code}` | {status} | {sentence} |'
        for code, (status, sentence, _) in refusals.CODES.items()
    ]
    lines += ["", "## Metrics", "", "At `/metrics`.", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for name, (kind, labels, meaning) in METRICS.items():
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |")
    for kit in load_kits(settings):
        if kit.name != "widgets":  # its actions have a page of their own
            routes = _route_table(create_app(settings, [kit]).openapi(), everywhere)
            lines += ["", f"## {kit.name}", "", *routes] if len(routes) > HEADER_LINES else []
    return "\n".join([*lines, ""])


HEADER_LINES = 2
OWN_HEADERS = ("authorization", "x-app-session-id")


def _route_table(document: dict[str, Any], skipped: dict[str, Any]) -> list[str]:
    schemas = document.get("components", {}).get("schemas", {})
    lines = ["| route | takes | returns | |", "|---|---|---|---|"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items() if path not in skipped else ():
            given = [one for one in operation.get("parameters", ()) if one["in"] != "path"]
            takes = [one["name"] + ("" if one["required"] else "?") for one in given if one["name"] not in OWN_HEADERS]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                takes += [one for one in _fields(content.get("schema", {}), schemas) if one not in takes]
            answers = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
            returns = [one.rstrip("?") for one in _fields(answers.get("schema", {}), schemas)]
            summary = operation["summary"]
            about = (
                f"{summary}{'' if summary.endswith('?') else '.'} {' '.join(operation.get('description', '').split())}"
            )
            cells = [
                f"`{method.upper()} {path}`",
                *(", ".join(f"`{one}`" for one in each) for each in (takes, returns)),
            ]
            lines.append(f"| {' | '.join(cells)} | {about.strip().replace('|', chr(92) + '|')} |")
    return lines


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The names of the fields of an object; of several alternatives, those of all."""
    if "$ref" in schema:
        return _fields(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    found: list[str] = []
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        found += [name for name in _fields(one, schemas) if name not in found]
    required = schema.get("required", ())
    return found + [name + ("" if name in required else "?") for name in schema.get("properties", {})]


def widget_actions() -> str:
    """docs/reference/widgets.md: the actions of the widgets API."""
    lines = [
        "# Actions of the widgets API",
        "",
        "The parameters of each action. `?`: optional. `a/b`: two names of one parameter. `url or id`: the URL of the",
        "page or the public id, but not both. [Widgets](../widgets.md#http-api) has the rules. This page is generated",
        "from the code by `scripts/reference.py`.",
        "",
    ]
    for endpoint in (*ENDPOINTS, ADMIN):
        lines += [f"## {endpoint.path}", "", "| action | | parameters | description |", "|---|---|---|---|"]
        for name, action in endpoint.actions.items():
            effect = "writes" if action.writes else "reads"
            lines.append(f"| `{name}` | {effect} | {_parameters(endpoint, action)} | {action.doc} |")
        lines.append("")
    return "\n".join(lines)


def _parameters(endpoint: Endpoint, action: Action) -> str:
    looks = [f"{_names(endpoint, one)}?" for one in action.view_parameters]
    return ", ".join(["; or ".join(", ".join(_parameters_of(endpoint, call)) for call in action.calls), *looks])


def _parameters_of(endpoint: Endpoint, call: Call) -> list[str]:
    owner = ["url or id", "token"] if call.is_by_owner else []
    needs = [_names(endpoint, one) for one in call.needs.split()]
    takes = [f"{_names(endpoint, one)}?" for one in (*call.takes.split(), *call.unused.split())]
    return [*owner, *needs, *takes]


def _names(endpoint: Endpoint, parameter: str) -> str:
    return "/".join(name for name, field in names_of(endpoint.request).field.items() if field == parameter)


PAGES = {
    "reference/api.md": api,
    "reference/cli.md": command_line,
    "reference/commands.md": commands,
    "reference/errors.md": error_list,
    "reference/findings.md": findings,
    "reference/http.md": http_api,
    "reference/settings.md": settings,
    "reference/widgets.md": widget_actions,
    "sessions.md": presets,
}


def main() -> int:
    with TemporaryDirectory() as empty, chdir(empty):  # what `make serve` has left in the checkout is not read
        pages = {name: page() for name, page in PAGES.items()}
    stale = [name for name, page in pages.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != page]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/{name} is stale; run: python scripts/reference.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(pages[name])
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
