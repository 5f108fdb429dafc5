"""Editing a hash field by field: other fields may change meanwhile, and a field that both changed is a conflict."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from keystead.catalogue import message
from keystead.console.form_fields import (
    ABSENT,
    FIELD,
    FormField,
    WrongEntry,
    as_json,
    entered,
    field_of,
    form_fields,
    resolve,
)
from keystead.console.key_visibility import hides_members, is_kept, shown_value
from keystead.console.value_editor import (
    LARGEST_BYTES,
    TOO_LARGE,
    EditConflict,
    NotEditable,
    ValueForm,
    as_bad_value,
    put_at,
    stored_digest,
)
from keystead.errors import BadValue, Unreadable
from keystead.schema.family import Bound
from keystead.schema.kinds.hash import Hash, HashKey
from keystead.schema.shape import shapes

OLD: Final = "old."
GONE: Final = "gone."
NEW_NAME: Final = "new_name"
_NEW: Final = "new value"
_MOST_FIELDS: Final = 200

Fields = dict[bytes, bytes]


async def hash_form(bound: Bound[Any], key: str) -> ValueForm | None:
    """The form of a hash; None: there is no such key. Raises NotEditable."""
    raw = await _see(bound, key)
    if not raw:
        return None
    found = _fields(bound, key, raw)
    kept = tuple(" → ".join(path) for path, field in found if field is None)
    return ValueForm(tuple(field for _, field in found if field is not None), kept, added=_added(bound))


async def save_hash(
    bound: Bound[Any], key: str, given: Mapping[str, str], before: Callable[[], Awaitable[None]]
) -> tuple[str, str]:
    """Write the fields that were edited, in one atomic step that compares them with what the form had shown.

    As `save_value`: `before` is for the audit log, and the result is what `restore_hash` takes. If nothing was
    edited, nothing is written.
    """
    raw = await _see(bound, key)
    if not raw:
        raise EditConflict
    changed = _edited(bound, key, raw, given)
    changes = {name: _decoded(bound, key, name, data) for name, data in changed.items()}
    if not changes:
        return "", ""
    _refuse_unreadable(bound, key, {**raw, **changed})
    seen = {name: raw.get(name) for name in changed}
    await before()
    if not await _update(bound, key, seen, changes):
        raise EditConflict
    now = await _see(bound, key)
    is_same = all(_decoded(bound, key, name, now.get(name)) == value for name, value in changes.items())
    return _as_text(seen), stored_digest(
        _as_text({name: now.get(name) for name in changed}).encode()
    ) if is_same else ""


async def restore_hash(bound: Bound[Any], key: str, stored: str, after: str) -> bool:
    """Write the former fields again, if the stored ones still have this digest. False: nothing was done."""
    record: HashKey[Any, Any, Any] = bound.key(key)
    former = {
        name.encode("latin-1"): None if data is None else data.encode("latin-1")
        for name, data in json.loads(stored).items()
    }
    raw = await record.see()
    seen = {name: raw.get(name) for name in former}
    if not raw or stored_digest(_as_text(seen).encode()) != after:
        return False
    try:
        return await _update(
            bound, key, seen, {name: _decoded(bound, key, name, data) for name, data in former.items()}
        )
    except BadValue:
        return False


async def _update(bound: Bound[Any], key: str, seen: dict[bytes, bytes | None], changes: dict[bytes, Any]) -> bool:
    record: HashKey[Any, Any, Any] = bound.key(key)
    named = {_own_name(bound, key, name): value for name, value in changes.items()}
    return bool(await record.update_seen(seen, named))


def _edited(bound: Bound[Any], key: str, raw: Fields, given: Mapping[str, str]) -> dict[bytes, bytes | None]:
    """The new form of each field that was edited; None: it is removed. Raises EditConflict and BadValue."""
    fields = {field.name: field for _, field in _fields(bound, key, raw) if field is not None}
    values: dict[str, Any] = {}
    for name in (one.removeprefix(FIELD) for one in given if one.startswith(FIELD)):
        if name == _NEW:
            continue
        field = fields.get(name)
        if field is None:
            raise EditConflict  # it was removed, or became another kind of value
        old = given.get(OLD + name, field.stored)
        shown = json.loads(old) if old else ABSENT
        value = ABSENT if GONE + name in given else entered(field, given, shown)
        if _is_same(value, shown):
            continue
        if not _is_same(field.value, shown):
            raise EditConflict
        top = field.path[0]
        values.setdefault(top, {top: _value_of(bound, top, raw.get(top.encode()))})
        put_at(values[top], field.path, value)
    changed = {top.encode(): _data_of(bound, top, record.get(top)) for top, record in values.items()}
    return {**changed, **_new_field(bound, key, raw, given)}


def _new_field(bound: Bound[Any], key: str, raw: Fields, given: Mapping[str, str]) -> dict[bytes, bytes | None]:
    added, name = _added(bound), given.get(NEW_NAME, "").strip()
    if added is None or not name or FIELD + _NEW not in given:
        return {}
    if name.encode() in raw:
        raise WrongEntry(message("{field}: there is a field of this name already"), field=name)
    value = entered(added, given, None)
    return {name.encode(): _data_of(bound, name, "" if value in (None, ABSENT) else value)}


def _added(bound: Bound[Any]) -> FormField | None:
    """The input for a new field; None: the fields are those of a model, or its values are not shown."""
    family: Hash[Any, Any, Any] = bound.family
    if family.fields or hides_members(family):
        return None
    shape = shapes(family)["fields"]
    plain, _ = resolve(shape["additionalProperties"], shape.get("$defs", {}))
    return field_of((_NEW,), plain, ABSENT)


def _fields(bound: Bound[Any], key: str, raw: Fields) -> list[tuple[tuple[str, ...], FormField | None]]:
    family: Hash[Any, Any, Any] = bound.family
    shape = shapes(family)["fields"]
    record = shape if family.fields else _free_record(shape, raw)
    stored, shown, unreadable = {}, {}, set()
    for name in record["properties"]:
        data = raw.get(name.encode())
        if data is None:
            continue
        shown[name] = family.field_codec(name.encode(), key).shown(data, key)
        try:
            stored[name] = _value_of(bound, name, data)
        except ValueError:
            unreadable.add(name)

    def keeps(path: tuple[str, ...], schema: Mapping[str, Any], own: Any) -> bool:
        return path[0] in unreadable or is_kept(family, path, schema, own)

    return list(form_fields(record, stored, shown_value(family, shown), shape.get("$defs", {}), keeps))


def _free_record(shape: Mapping[str, Any], raw: Fields) -> dict[str, Any]:
    """The schema of a hash with fields of any name, for those it has. What is not text is left out."""
    names = []
    for name in raw:
        try:
            names.append(name.decode())
        except UnicodeDecodeError:
            continue
    names.sort()
    return {"properties": dict.fromkeys(names, shape["additionalProperties"]), "required": names}


def _is_own_text(bound: Bound[Any], name: str) -> bool:
    """Whether the values of a field are stored as their own text, without quotes."""
    shape = shapes(bound.family)["fields"]
    schema = shape["properties"][name] if bound.family.fields else shape["additionalProperties"]
    plain, _ = resolve(schema, shape.get("$defs", {}))
    return plain.get("type") == "string"


def _value_of(bound: Bound[Any], name: str, data: bytes | None) -> Any:
    """Stored bytes as JSON. Raises ValueError if they are not."""
    if data is None:
        return ABSENT
    return data.decode() if _is_own_text(bound, name) else json.loads(data)


def _data_of(bound: Bound[Any], name: str, value: Any) -> bytes | None:
    if value is None or value is ABSENT:
        return None
    if isinstance(value, str) and _is_own_text(bound, name):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _decoded(bound: Bound[Any], key: str, name: bytes, data: bytes | None) -> Any:
    """The value of a field. Raises BadValue."""
    if data is None:
        return None
    try:
        return bound.family.field_codec(name, key).decode(data, key, bound.ring, name.decode())
    except Unreadable as error:
        raise as_bad_value(error, key) from None


def _own_name(bound: Bound[Any], key: str, name: bytes) -> Any:
    """The name of a field, as the program writes it."""
    family: Hash[Any, Any, Any] = bound.family
    if family.fields:
        return name.decode()
    try:
        return family.codecs["field"].decode(name, key)
    except Unreadable as error:
        raise as_bad_value(error, key) from None


def _refuse_unreadable(bound: Bound[Any], key: str, raw: Mapping[bytes, bytes | None]) -> None:
    """Raises BadValue if the program could not read the edited record."""
    try:
        bound.family.record_of({name: data for name, data in raw.items() if data is not None}, key, bound.ring)
    except Unreadable as error:
        raise as_bad_value(error, key) from None


def _is_same(one: Any, other: Any) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return as_json(one) == as_json(other)


def _as_text(fields: Mapping[bytes, bytes | None]) -> str:
    return json.dumps(
        {
            name.decode("latin-1"): None if data is None else data.decode("latin-1")
            for name, data in sorted(fields.items())
        }
    )


async def _see(bound: Bound[Any], key: str) -> Fields:
    record: HashKey[Any, Any, Any] = bound.key(key)
    if await record.count() > _MOST_FIELDS:
        raise NotEditable(message("The hash has more than {count} fields."), count=_MOST_FIELDS)
    raw = await record.see()
    if sum(len(name) + len(data) for name, data in raw.items()) > LARGEST_BYTES:
        raise NotEditable(TOO_LARGE, count=f"{LARGEST_BYTES:,}")
    return raw
