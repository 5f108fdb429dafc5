"""The fields of a form, made from the JSON Schema of a value, and what was entered in them, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from keystead.catalogue import message
from keystead.errors import BadValue

FIELD: Final = "field."
NONE: Final = "none."
_DEEPEST: Final = 6

Input = Literal["text", "number", "flag", "choice", "json"]


class WrongEntry(BadValue):
    """What was entered cannot be a value of its field. `text` is a message of the console, filled in with `values`."""

    def __init__(self, text: str, **values: object) -> None:
        super().__init__(text.format(**values))
        self.text, self.values = text, values


class _Absent:
    """The value of a field that is not stored."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class FormField:
    """One value of a stored object, as a field of a form.

    path     the names that lead to it: `("shipping", "city")`; none: it is the whole value
    input    `text` and `number` are what they say, `flag` is on or off, `choice` is one of `choices`; `json` is any
             other value, as JSON
    value    the stored value, or ABSENT
    text     the same, as the form shows it
    choices  texts with their values
    is_optional   whether it may be none; then it is stored as `none`: as null, or not at all
    """

    path: tuple[str, ...]
    input: Input
    value: Any
    text: str
    doc: str = ""
    choices: tuple[tuple[str, Any], ...] = ()
    is_optional: bool = False
    none: Any = ABSENT

    @property
    def name(self) -> str:
        """Its name in the form, as a JSON pointer: `shipping/city`."""
        return "/".join(one.replace("~", "~0").replace("/", "~1") for one in self.path) or "whole"

    @property
    def label(self) -> str:
        return " → ".join(self.path)

    @property
    def is_none(self) -> bool:
        return self.value is None or self.value is ABSENT

    @property
    def stored(self) -> str:
        """The stored value as JSON, to see later what was edited; empty: it is not stored."""
        return "" if self.value is ABSENT else as_json(self.value)


# Whether a value has no input, by its path, its schema, and itself as pages show it.
IsKept = Callable[[tuple[str, ...], Mapping[str, Any], Any], bool]


def form_fields(
    record: Mapping[str, Any],
    stored: Mapping[str, Any],
    shown: Any,
    definitions: Mapping[str, Any],
    is_kept: IsKept,
    path: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], FormField | None]]:
    """The values of an object with this schema, and of objects in it, each with its path; None: it is kept as it is."""
    required = record.get("required", ())
    for name, schema in record["properties"].items():
        where, value = (*path, name), stored.get(name, ABSENT)
        own = shown.get(name) if isinstance(shown, Mapping) else shown
        plain, is_nullable = resolve(schema, definitions)
        is_object = "properties" in plain and isinstance(value, dict) and len(where) < _DEEPEST
        if is_object and not is_kept(where, schema, None):
            yield from form_fields(plain, value, own, definitions, is_kept, where)
        elif is_kept(where, schema, own) or is_kept(where, plain, own):
            yield where, None
        else:
            none = None if is_nullable else ABSENT
            yield where, field_of(where, plain, value, is_optional=is_nullable or name not in required, none=none)


def resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The schema that a reference or an optional value leads to, and whether the value may be null."""
    is_nullable = False
    for _ in range(_DEEPEST):
        inner: Mapping[str, Any]
        options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        is_nullable = is_nullable or len(options) < len(schema.get("anyOf", ()))
        if "$ref" in schema:
            inner = definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        elif len(options) == 1:
            inner = options[0]
        else:
            break
        schema = {**inner, **{name: one for name, one in schema.items() if name not in ("$ref", "anyOf")}}
    return schema, is_nullable


def field_of(
    path: tuple[str, ...], schema: Mapping[str, Any], value: Any, *, is_optional: bool = False, none: Any = ABSENT
) -> FormField:
    """The field of one value; `schema` is resolved. A value that does not fit its schema is edited as JSON."""
    choices = _choices(schema, is_optional)
    kept = _input(schema, value, choices, is_optional)
    if _is_none(value, is_optional):
        text = as_json(bool(schema.get("default"))) if kept == "flag" else ""
    else:
        text = as_text(value) if kept in ("text", "choice") else as_json(value)
    return FormField(path, kept, value, text, str(schema.get("description", "")), choices, is_optional, none)


def _input(schema: Mapping[str, Any], value: Any, choices: Sequence[tuple[str, Any]], is_optional: bool) -> Input:
    is_none = _is_none(value, is_optional)
    if choices and (is_none or value in [one for _, one in choices]):
        return "choice"
    types: dict[str, tuple[Input, Any]] = {
        "string": ("text", str),
        "integer": ("number", int),
        "number": ("number", int | float),
        **({} if is_optional else {"boolean": ("flag", bool)}),
    }
    found, fits = types.get(str(schema.get("type")), ("json", object))
    return found if is_none or isinstance(value, fits) else "json"


def _is_none(value: Any, is_optional: bool) -> bool:
    return value is ABSENT or (value is None and is_optional)


def _choices(schema: Mapping[str, Any], is_optional: bool) -> tuple[tuple[str, Any], ...]:
    found = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if schema.get("type") == "boolean" and is_optional:
        found = [True, False]
    texts = dict.fromkeys(map(as_text, found))
    return tuple((as_text(one), one) for one in found) if len(texts) == len(found) else ()


def entered(field: FormField, given: Mapping[str, str], before: Any) -> Any:
    """What was entered in a field; ABSENT: nothing. Raises WrongEntry. `before`: the value that the form had shown."""
    found = _entered(field, given[FIELD + field.name], NONE + field.name in given, before)
    return before if found in (None, ABSENT) and before in (None, ABSENT) else found


def _entered(field: FormField, text: str, is_none: bool, before: Any) -> Any:
    if field.input == "text":
        if not text and (is_none if field.is_optional else before is ABSENT):
            return field.none
        return same_line_ends(text, before)
    if field.input == "flag":
        return ABSENT if before is ABSENT and text == field.text else text == "true"
    if not text.strip():
        return field.none
    for shown, value in field.choices:
        if shown == text:
            return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = message("{field}: write it as a number, such as 42")
        data = message('{field}: write it as JSON, such as 42, true, null, "text" or [1, 2]')
        raise WrongEntry(number if field.input == "number" else data, field=field.label) from None


def same_line_ends(text: str, before: Any) -> str:
    """The text that was entered. Browsers send every line end as CRLF; line ends that were not edited remain."""
    plain = text.replace("\r\n", "\n")
    if isinstance(before, str) and plain == before.replace("\r\n", "\n").replace("\r", "\n"):
        return before
    return plain


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str:
    """A value as its own text: a text without quotes, anything else as JSON."""
    return value if isinstance(value, str) else as_json(value)
