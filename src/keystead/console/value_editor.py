"""Editing a value through a form made from its model: validated, and written only if nobody changed it meanwhile."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keystead.catalogue import message
from keystead.console.form_fields import ABSENT, FIELD, FormField, as_text, entered, field_of, form_fields, resolve
from keystead.console.key_visibility import hides_keys, is_kept, is_partly_hidden, shown_value
from keystead.errors import BadValue, Unreadable, printable
from keystead.parts.digest import digest
from keystead.schema.family import Bound
from keystead.schema.kinds import Hash, Seen, Value, ValueKey
from keystead.schema.shape import shapes

LARGEST_BYTES: Final = 200_000  # what a form and a request can hold
TOO_LARGE: Final = message("The value is larger than {count} bytes.")


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The form of one value.

    kept     the fields that cannot be edited here, because they are sealed or credentials; they keep their values
    version  identifies the stored bytes that it was made from; empty for a hash, whose fields are compared one by one
    added    the input for the value of a new field, in a hash with fields of any name
    """

    fields: tuple[FormField, ...]
    kept: tuple[str, ...]
    version: str = ""
    added: FormField | None = None


class EditConflict(Exception):
    """The value was changed or deleted after the form was shown. Nothing was written."""


class NotEditable(Exception):
    """This value cannot be edited here. `text` is a message of the console, filled in with `values`."""

    def __init__(self, text: str, detail: str = "", **values: object) -> None:
        super().__init__(text.format(**values))
        self.text, self.detail, self.values = text, detail, values


def can_edit(bound: Bound[Any]) -> bool:
    """Whether values of this family have a form at all.

    What a credential admits to has none: whoever changed the user of a session would become that user.
    """
    return isinstance(bound.family, Value | Hash) and not hides_keys(bound.family)


async def value_form(bound: Bound[Any], key: str) -> ValueForm | None:
    """The form of the value of a key; None: there is no such key. One round trip. Raises NotEditable."""
    seen = await _see(bound, key)
    if seen is None:
        return None
    found = _fields(bound, key, seen)
    kept = tuple(" → ".join(path) for path, field in found if field is None)
    return ValueForm(tuple(field for _, field in found if field is not None), kept, stored_digest(seen.stored))


async def save_value(
    bound: Bound[Any], key: str, given: Mapping[str, str], before: Callable[[], Awaitable[None]]
) -> tuple[str, str]:
    """Validate and write the fields of a form. `before` is awaited just before the write, for the audit log.

    Raises EditConflict if the value is not the one that the form was made from, and BadValue, whose sentence is for
    the person, if it does not fit its model. The write is a compare-and-set: of two people who edit the same value at
    once, the second gets the conflict. Returns what `restore_value` takes; the digest is empty if the value was
    changed again since.
    """
    seen = await _see(bound, key)
    if seen is None or stored_digest(seen.stored) != given.get("version"):
        raise EditConflict
    value = _edited(bound, key, seen, given)
    await before()
    record: ValueKey[Any] = bound.key(key)
    if not await record.replace_seen(seen, value):
        raise EditConflict
    now = await _see(bound, key)
    after = stored_digest(now.stored) if now is not None and now.value == value else ""
    return seen.stored.decode("latin-1"), after


async def restore_value(bound: Bound[Any], key: str, stored: str, after: str) -> bool:
    """Write the former bytes again, if the stored ones still have this digest. False: nothing was done."""
    record: ValueKey[Any] = bound.key(key)
    try:
        seen = await record.see()
        if seen is None or stored_digest(seen.stored) != after:
            return False
        value = bound.family.codec.decode(stored.encode("latin-1"), key, bound.ring)
    except Unreadable:
        return False
    return bool(await record.replace_seen(seen, value))


def stored_digest(stored: bytes) -> str:
    """Identifies stored bytes."""
    return digest(stored.decode("latin-1"))


def as_bad_value(error: Unreadable, key: str) -> BadValue:
    """The same sentence, for whoever entered the value."""
    return BadValue(str(error).removeprefix(f"{printable(key)}: "))


def _fields(bound: Bound[Any], key: str, seen: Seen[Any]) -> list[tuple[tuple[str, ...], FormField | None]]:
    """The fields of the stored value, or the one field of a value without fields. Raises NotEditable."""
    family = bound.family
    shown = shown_value(family, family.codec.shown(seen.stored, key))
    root = shapes(family).get("value", {})
    definitions = root.get("$defs", {})
    schema, _ = resolve(root, definitions)
    stored = _stored_object(seen)
    if "properties" in schema and stored is not None:
        return list(
            form_fields(schema, stored, shown, definitions, lambda path, one, own: is_kept(family, path, one, own))
        )
    whole = _whole(schema, _whole_text(seen, shown))
    return [(whole.path, whole)]


def _whole(schema: Mapping[str, Any], text: str) -> FormField:
    """The field of a value without fields: it is edited as it is stored."""
    if schema.get("type") in ("boolean", "integer", "number"):
        try:
            return field_of((), schema, json.loads(text))
        except ValueError:  # pragma: no cover - it was decoded
            pass
    return field_of((), {"enum": schema.get("enum", ()), "type": "string"}, text)


def _edited(bound: Bound[Any], key: str, seen: Seen[Any], given: Mapping[str, str]) -> Any:
    """The edited value. Stored and edited fields are decoded together, as the program would read them."""
    stored, whole = _stored_object(seen) or {}, None
    for _, field in _fields(bound, key, seen):
        if field is not None and FIELD + field.name in given:
            value = entered(field, given, field.value)
            if not field.path:
                whole = as_text(value)
            else:
                put_at(stored, field.path, value)
    text = json.dumps(stored, ensure_ascii=False, separators=(",", ":")) if whole is None else whole
    data = text.encode("utf-8", "surrogatepass")
    try:
        return bound.family.codec.decode(data, key, bound.ring)
    except Unreadable as error:
        raise as_bad_value(error, key) from None


def put_at(record: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set or, if it is ABSENT, remove a value inside a record."""
    for name in path[:-1]:
        record = record[name]
    if value is ABSENT:
        record.pop(path[-1], None)
    else:
        record[path[-1]] = value


def _whole_text(seen: Seen[Any], shown: Any) -> str:
    """A value without fields, as text. Raises NotEditable."""
    if is_partly_hidden(shown):
        raise NotEditable(message("The value is a credential, or has one in it."))
    try:
        return seen.stored.decode()
    except UnicodeDecodeError:
        raise NotEditable(message("The value is not text.")) from None


async def _see(bound: Bound[Any], key: str) -> Seen[Any] | None:
    record: ValueKey[Any] = bound.key(key)
    try:
        found: Seen[Any] | None = await record.see()
    except Unreadable as error:
        detail = str(error).removeprefix(f"{printable(key)}: ")
        raise NotEditable(message("The value does not fit its declared type."), detail) from None
    if found is not None and len(found.stored) > LARGEST_BYTES:
        raise NotEditable(TOO_LARGE, count=f"{LARGEST_BYTES:,}")
    return found


def _stored_object(seen: Seen[Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(seen.stored)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
