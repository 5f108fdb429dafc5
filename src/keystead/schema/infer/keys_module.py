"""Write a draft as a `keys.py`: it imports, and `ruff format` leaves it as it is, at 88 columns and more.

What was read from a store or a document reaches the file only as a string literal, a checked identifier or a comment
of one line, so hostile keys cannot put code into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from keyword import iskeyword
from typing import Final

from pydantic import BaseModel

from keystead.errors import printable
from keystead.schema.infer.draft import (
    USED_NAMES,
    DraftFamily,
    DraftField,
    DraftKeyspace,
    DraftModel,
    DraftRelation,
    identifier,
    is_field_name,
)
from keystead.schema.lifetime import After, EndOfDay, Lifetime, Never, Sliding, Spread, Until
from keystead.schema.relation import Link

# The names that types may consist of, and where they are imported from.
IMPORTS: Final = {
    "date": "datetime",
    "Any": "typing",
    "Literal": "typing",
    "UUID": "uuid",
    **dict.fromkeys(("BigInt", "EpochMs", "EpochSeconds", "IsoSeconds", "IsoTime", "Sealed"), "keystead.schema"),
}
_STANDARD: Final = ("datetime", "typing", "uuid")
_BUILTIN: Final = frozenset({"str", "int", "float", "bool", "bytes", "list", "dict", "set", "tuple", "None"})
_COLUMNS: Final = 88
_UNITS: Final = (("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_COMMENT: Final = 100


def keys_module(draft: DraftKeyspace) -> str:
    """The source of a module with this keyspace and its models.

    Raises ValueError if a name or a type of the draft is not one: the caller drafts only checked ones.
    """
    models = {model.name for model in draft.models}
    body: list[str] = []
    used: set[str] = {"keystead.schema.Keyspace"}
    for model in draft.models:
        body += ["", "", *_model(model, models, used)]
    body += ["", "", f"class {_checked(draft.name)}(Keyspace):", f'    """{_docstring(draft.doc)}"""']
    for family in draft.families:
        body += ["", *_family(family, models, used)]
    title = [f'"""{_docstring(draft.doc)}"""', ""]
    notes = [*_comments(draft.notes, ""), *([""] if draft.notes else [])]
    return "\n".join([*title, *notes, *_imports(used), *body, ""])


def duration_text(ms: int) -> str:
    """`30d`, `1h 30m`: as `duration_ms` reads it. Weeks only if there is nothing else."""
    if ms % _UNITS[0][1] == 0 and ms // _UNITS[0][1] > 4:
        return f"{ms // 86_400_000}d"
    words = []
    for unit, size in _UNITS[1:]:
        count, ms = divmod(ms, size)
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words)


def literal(text: str) -> str:
    """A string literal, in double quotes unless single ones need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(_escape(character, quote) for character in text) + quote


def _escape(character: str, quote: str) -> str:
    if character in ("'", '"'):
        return f"\\{character}" if character == quote else character
    return repr(character)[1:-1]


def _imports(used: Iterable[str]) -> Iterator[str]:
    by_module: dict[str, set[str]] = {}
    for one in used:
        module, _, name = one.rpartition(".")
        by_module.setdefault(module, set()).add(name)
    standard = [name for name in _STANDARD if name in by_module]
    for module in standard:
        yield from _import(module, by_module.pop(module))
    if standard:
        yield ""
    for module in sorted(by_module):
        yield from _import(module, by_module[module])


def _import(module: str, names: Iterable[str]) -> Iterator[str]:
    ordered = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _COLUMNS:
        yield line
    else:
        yield from (f"from {module} import (", *(f"    {name}," for name in ordered), ")")


# --- models ------------------------------------------------------------------------------------------------


def _model(model: DraftModel, models: set[str], used: set[str]) -> Iterator[str]:
    used.add("pydantic.BaseModel")
    yield f"class {_checked(model.name)}(BaseModel):"
    yield f'    """{_docstring(model.doc or "A stored value.")}"""'
    taken: set[str] = {*dir(BaseModel), *USED_NAMES}
    yield ""
    for field in model.fields:
        if field.doc:
            yield from _comments([field.doc], "    ")
        yield from _field(field, models, used, taken)


def _field(field: DraftField, models: set[str], used: set[str], taken: set[str]) -> Iterator[str]:
    is_free = is_field_name(field.name, taken)
    name = field.name if is_free else identifier(f"field_{field.name}", taken)
    taken.add(name)
    type_ = _type(field.type, models, used)
    if field.nullable:
        type_ = f"{type_} | None"
    elif not field.required:
        used.add("keystead.schema.OmittedIfNone")
        type_ = f"OmittedIfNone[{type_}]"
    if name == field.name:
        yield f"    {name}: {type_}" + ("" if field.required else " = None")
        return
    used.add("pydantic.Field")
    options = [*([] if field.required else ["default=None"]), f"alias={literal(field.name)}"]
    line = f"    {name}: {type_} = Field({', '.join(options)})"
    if len(line) <= _COLUMNS:
        yield line
    else:
        yield from (f"    {name}: {type_} = Field(", *(f"        {option}," for option in options), "    )")


def _type(text: str, models: set[str], used: set[str]) -> str:
    """A type, checked: known names, brackets, commas, unions and literals only."""
    left = re.sub(r'"[A-Za-z0-9 _.:/@+-]*"', "", text)
    for name in re.findall(r"[^\W\d]\w*", left):
        if name in IMPORTS:
            used.add(f"{IMPORTS[name]}.{name}")
        elif name not in models and name not in _BUILTIN:
            raise ValueError(f"{printable(text)} is not a type of a draft: {printable(name)} is unknown")
    if re.sub(r"[^\W\d]\w*|[\[\], |]|-?\d+", "", left):
        raise ValueError(f"{printable(text)} is not a type of a draft")
    return text


# --- families ----------------------------------------------------------------------------------------------


def _family(family: DraftFamily, models: set[str], used: set[str]) -> Iterator[str]:
    used.add(f"keystead.schema.{family.kind}")
    sureness = f"{family.confidence}: " if family.evidence else family.confidence
    first, *rest = family.evidence or ("",)
    yield from _comments([f"{sureness}{first}", *rest], "    ")
    arguments = [literal(family.pattern)]
    if family.kind != "Counter":
        arguments.append(_type(family.value, models, used))
    arguments += _options(family, used)
    yield f"    {_checked(family.name)} = {family.kind}("
    for argument in arguments:
        yield f"        {argument},"
    yield "    )"


def _options(family: DraftFamily, used: set[str]) -> Iterator[str]:
    if family.keep is not None:
        yield f"keep={int(family.keep)}"
    if family.score:
        yield f"score={literal(family.score)}"
    if family.lifetime is not None:
        yield f"lifetime={_lifetime(family.lifetime, used)}"
    if family.role != "default":
        yield f"role={literal(family.role)}"
    by_kind: dict[str, list[DraftRelation]] = {}
    for relation in family.relations:
        by_kind.setdefault(relation.kind, []).append(relation)
    for kind, relations in by_kind.items():
        yield f"{kind}={_links([one.link for one in relations], used)}"
    if family.member_of is not None:
        yield f"member_of={literal(family.member_of)}"
    if family.tag is not None:
        yield f"tag={literal(family.tag)}"
    yield f"doc={literal(' '.join(family.doc.split()))}"


def _links(links: Sequence[Link], used: set[str]) -> str:
    written = [_link(one, used) for one in links]
    if len(written) == 1:
        return written[0]
    return "[\n" + "".join(f"            {one},\n" for one in written) + "        ]"


def _link(link: Link, used: set[str]) -> str:
    target = literal(_checked(link.target if isinstance(link.target, str) else link.target.name))
    options = [f"{name}={literal(text)}" for name in ("member", "score") if (text := getattr(link, name)) is not None]
    options += [f"{name}=True" for name in ("admits", "optional") if getattr(link, name)]
    for name, source in link.where.items():
        if isinstance(source, str):
            options.append(f"{_checked(name)}={literal(source)}")
        else:
            used.add("keystead.schema.VALUE")
            options.append(f"{_checked(name)}=VALUE")
    if not options:
        return target
    used.add("keystead.schema.link")
    return f"link({', '.join([target, *options])})"


def _lifetime(lifetime: Lifetime, used: set[str]) -> str:
    name, arguments = _lifetime_call(lifetime)
    used.add(f"keystead.schema.{name}")
    return f"{name}({', '.join(arguments)})"


def _lifetime_call(lifetime: Lifetime) -> tuple[str, list[str]]:
    match lifetime:
        case After(ms):
            return "after", [literal(duration_text(ms))]
        case Spread(ms, jitter_ms):
            return "after", [literal(duration_text(ms)), f'jitter="{max(1, jitter_ms * 100 // ms)}%"']
        case Sliding(ms, touch_every_ms):
            return "sliding", [literal(duration_text(ms)), f"touch_every={literal(duration_text(touch_every_ms))}"]
        case Until(field, at_most_ms, unit):
            at_most = [] if at_most_ms is None else [f"at_most={literal(duration_text(at_most_ms))}"]
            return "until", [literal(field), *at_most, *([] if unit == "ms" else [f"unit={literal(unit)}"])]
        case EndOfDay(zone):
            return "end_of_day", [literal(zone)]
        case Never(reason):
            return "never", [literal(reason)]
        case _:
            raise ValueError(f"{type(lifetime).__name__} is not a lifetime of a draft")


# --- text --------------------------------------------------------------------------------------------------


def _comments(lines: Iterable[str], indent: str) -> Iterator[str]:
    for line in lines:
        text = " ".join(printable(line).split())
        yield f"{indent}# {text if len(text) <= _COMMENT else text[: _COMMENT - 1] + '…'}".rstrip()


def _docstring(text: str) -> str:
    words = " ".join(printable(text).replace("\\", "/").replace('"', "'").split())
    return words or "Keys."


def _checked(name: str) -> str:
    if not name.isidentifier() or not name.isascii() or iskeyword(name):
        raise ValueError(f"{printable(name)} is not a name of a draft; make one with identifier()")
    return name
