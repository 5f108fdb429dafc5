"""Editing a value through a form made from its model: validated, and written only if nobody changed it meanwhile."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from keystead.console.key_visibility import (
    credential_fields,
    hides_keys,
    is_credential,
    is_partly_hidden,
    is_sealed_shape,
    shown_value,
)
from keystead.errors import BadValue, Unreadable, printable
from keystead.parts.digest import digest
from keystead.schema.family import Bound
from keystead.schema.kinds import Seen, Value, ValueKey
from keystead.schema.shape import shapes

FIELD: Final = "field."
WHOLE: Final = "whole"
_LARGEST_BYTES: Final = 200_000  # what a form and a request can hold

Input = Literal["text", "number", "choice", "json"]


@dataclass(frozen=True, slots=True)
class EditedField:
    """A field of the form.

    input     `text` and `number` are what they say; `choice` is one of `choices`; `json` is any other value, as JSON
    """

    name: str
    input: Input
    text: str
    doc: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The form of one value. `version` identifies the stored bytes that it was made from.

    kept   the fields that cannot be edited here, because they are sealed or credentials; they keep their values
    """

    fields: tuple[EditedField, ...]
    kept: tuple[str, ...]
    version: str


class EditConflict(Exception):
    """The value was changed or deleted after the form was shown. Nothing was written."""


class NotEditable(Exception):
    """This value cannot be edited here; the message says why."""


def can_edit(bound: Bound[Any]) -> bool:
    """Whether values of this family have a form at all.

    What a credential admits to has none: whoever changed the user of a session would become that user.
    """
    return isinstance(bound.family, Value) and not hides_keys(bound.family)


async def make_form(bound: Bound[Any], key: str) -> ValueForm | None:
    """The form of the value of a key; None: there is no such key. One round trip. Raises NotEditable."""
    seen = await _see(bound, key)
    if seen is None:
        return None
    properties, stored = _properties(bound), _stored_object(seen)
    version = stored_digest(seen)
    shown = _shown(bound, key, seen)
    if properties is None or stored is None:
        return ValueForm((EditedField(WHOLE, "text", _whole_text(seen, shown)),), (), version)
    kept = tuple(name for name, schema in properties.items() if _is_kept(bound, name, schema, shown))
    fields = tuple(
        _field(name, schema, stored.get(name), name in stored)
        for name, schema in properties.items()
        if name not in kept
    )
    return ValueForm(fields, kept, version)


async def save_form(
    bound: Bound[Any], key: str, version: str, given: Mapping[str, str], before: Callable[[], Awaitable[None]]
) -> tuple[bytes, str]:
    """Validate and write the fields of a form. `before` is awaited just before the write, for the audit log.

    Raises EditConflict if the value is not the one that the form was made from, and BadValue, whose sentence is for
    the person, if it does not fit its model. The write is a compare-and-set: of two people who edit the same value at
    once, the second gets the conflict. Returns the bytes that were stored before, and the digest of those stored now;
    the digest is empty if they were changed again since.
    """
    seen = await _see(bound, key)
    if seen is None or stored_digest(seen) != version:
        raise EditConflict
    value = _value_of(bound, key, seen, given)
    await before()
    record: ValueKey[Any] = bound.key(key)
    if not await record.replace_seen(seen, value):
        raise EditConflict
    now = await _see(bound, key)
    return seen.stored, stored_digest(now) if now is not None and now.value == value else ""


def stored_digest(seen: Seen[Any]) -> str:
    """Identifies stored bytes."""
    return digest(seen.stored.decode("latin-1"))


def _value_of(bound: Bound[Any], key: str, seen: Seen[Any], given: Mapping[str, str]) -> Any:
    """The edited value. Stored and edited fields are decoded together, as the program would read them."""
    properties, stored, shown = _properties(bound), _stored_object(seen), _shown(bound, key, seen)
    if properties is None or stored is None:
        data = _entered(given.get(FIELD + WHOLE, ""), _whole_text(seen, shown)).encode()
    else:
        edited = dict(stored)
        for name, schema in properties.items():
            if not _is_kept(bound, name, schema, shown):
                _apply(edited, name, schema, given)
        data = json.dumps(edited, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    try:
        return bound.family.codec.decode(data, key, bound.ring)
    except Unreadable as error:
        raise BadValue(str(error).removeprefix(f"{printable(key)}: ")) from None


def _apply(edited: dict[str, Any], name: str, schema: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Set one field of the stored object as it was entered. An empty field that is not text is left out."""
    text = given.get(FIELD + name)
    if text is None:
        return
    kind = _field(name, schema, edited.get(name), name in edited).input
    if kind == "text" and (text or name in edited):
        edited[name] = _entered(text, edited.get(name))
    elif not text.strip():
        edited.pop(name, None)
    elif kind == "choice":
        edited[name] = text
    else:
        try:
            edited[name] = json.loads(text)
        except (ValueError, RecursionError):
            raise BadValue(f'{name}: write it as JSON, such as 42, true, null, "text" or [1, 2]') from None


def _entered(text: str, stored: Any) -> str:
    """The text that was entered. Browsers send every line end as CRLF; line ends that were not edited remain."""
    plain = text.replace("\r\n", "\n")
    if isinstance(stored, str) and plain == stored.replace("\r\n", "\n").replace("\r", "\n"):
        return stored
    return plain


def _shown(bound: Bound[Any], key: str, seen: Seen[Any]) -> Any:
    """The value as its page shows it."""
    return shown_value(bound.family, bound.family.codec.shown(seen.stored, key))


def _whole_text(seen: Seen[Any], shown: Any) -> str:
    """A value without fields, as text. Raises NotEditable."""
    if is_partly_hidden(shown):
        raise NotEditable("the value is a credential, or has one in it")
    try:
        return seen.stored.decode()
    except UnicodeDecodeError:
        raise NotEditable("the value is not text") from None


async def _see(bound: Bound[Any], key: str) -> Seen[Any] | None:
    record: ValueKey[Any] = bound.key(key)
    try:
        found: Seen[Any] | None = await record.see()
    except Unreadable as error:
        raise NotEditable(str(error).removeprefix(f"{printable(key)}: ")) from None
    if found is not None and len(found.stored) > _LARGEST_BYTES:
        raise NotEditable(f"the value is larger than {_LARGEST_BYTES:,} bytes")
    return found


def _properties(bound: Bound[Any]) -> Mapping[str, Any] | None:
    """The fields of the stored object, each with its schema; None: the value is not an object with fields."""
    schema = shapes(bound.family).get("value", {})
    found = schema.get("properties")
    return found if isinstance(found, Mapping) and found else None


def _stored_object(seen: Seen[Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(seen.stored)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_kept(bound: Bound[Any], name: str, schema: Any, shown: Any) -> bool:
    """Whether a field has no input: it is a credential or sealed, or something of that kind is in it."""
    if is_sealed_shape(schema) or is_credential(name) or name in credential_fields(bound.family):
        return True
    return isinstance(shown, Mapping) and is_partly_hidden(shown.get(name))


def _input(schema: Mapping[str, Any]) -> Input:
    if schema.get("enum") and all(isinstance(one, str) for one in schema["enum"]):
        return "choice"
    by_type: dict[str, Input] = {"string": "text", "integer": "number", "number": "number"}
    return by_type.get(str(schema.get("type")), "json")


def _field(name: str, schema: Mapping[str, Any], value: Any, is_stored: bool) -> EditedField:
    kind = _input(schema)
    if kind in ("text", "choice") and is_stored and not isinstance(value, str):
        kind = "json"  # a null, for instance
    text = ""
    if is_stored:
        text = value if isinstance(value, str) and kind != "json" else json.dumps(value, ensure_ascii=False)
    return EditedField(name, kind, text, str(schema.get("description", "")), tuple(schema.get("enum", ())))
