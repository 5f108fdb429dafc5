"""What the console never shows: credentials in keys and in values. Sealed fields are hidden by the schema itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from keystead.errors import BadKey
from keystead.schema.family import Bound, Family
from keystead.schema.shape import shapes

HIDDEN: Final = "(hidden)"
_SEALED: Final = "(sealed)"  # as the schema shows a sealed field

_CREDENTIAL: Final = re.compile(
    r"(?:^|_)(?:token|secrets?|passwords?|passwd|passphrase|passcode|sid|otp|jwt|verifier|credentials?|authorization"
    r"|cookies?|(?:api|private|signing|secret|access|encryption|master)_?key|(?:backup|recovery)_?codes?)$"
)
_PUBLIC: Final = re.compile(r"^id$|_id$|Id$")  # an id names a thing, and admits nobody
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHOWN_CHARS: Final = 4


def is_credential(name: str) -> bool:
    """Whether something of this name is a credential: `access_token`, `clientSecret`; not `token_digest`."""
    return _CREDENTIAL.search(_CAMEL.sub("_", name).lower().replace("-", "_")) is not None


def secret_placeholders(family: Family[Any]) -> frozenset[str]:
    """The placeholders that hold credentials: those of the type `token` that are not called `id`, and those with the
    name of one.

    In the keys of kits they are digests, but in other keys they may be the secret itself.
    """
    types = family.pattern.types
    return frozenset(
        name
        for name in family.pattern.names
        if is_credential(name) or (types[name].name == "token" and not _PUBLIC.search(name))
    )


def mask(text: str) -> str:
    """Enough to recognize it, too little to use it."""
    return f"{text[:_SHOWN_CHARS]}…" if len(text) > 2 * _SHOWN_CHARS else "…"


def shown_values(family: Family[Any], values: Mapping[str, Any]) -> dict[str, str]:
    """The placeholder values of a key, as text, with credentials masked."""
    hidden = secret_placeholders(family)
    found = {}
    for name, value in values.items():
        text = "" if value is None else str(getattr(value, "value", value))
        found[name] = mask(text) if name in hidden else text
    return found


def shown_key(bound: Bound[Any], key: str) -> str:
    """A key, with credentials masked."""
    values = bound.parse(key) or {}
    for name in secret_placeholders(bound.family):
        if values.get(name) is not None:
            try:
                written = bound.family.pattern.render_one(name, values[name])
            except BadKey:  # pragma: no cover - it was parsed from a key
                return HIDDEN
            key = key.replace(written, mask(written)) if written else key
    return key


def hides_keys(family: Family[Any]) -> bool:
    return bool(secret_placeholders(family))


def hides_values(family: Family[Any]) -> bool:
    """Whether a value of this family may contain a credential that is not sealed: then its bytes are not shown."""
    if _holds_credential(family) or _names_credential(family) or credential_fields(family):
        return True
    return any(is_credential(name) for schema in shapes(family).values() for name in _open_properties(schema))


def hides_members(family: Family[Any]) -> bool:
    """Whether its value, or one of its members, is a credential as a whole."""
    return _holds_credential(family) or _names_credential(family)


def shown_value(family: Family[Any], value: Any) -> Any:
    """A value or an entry, as the schema shows it, with credentials hidden."""
    if _holds_credential(family) or (_names_credential(family) and not isinstance(value, Mapping)):
        return _hide_texts(value)
    return _hide_fields(value, credential_fields(family))


def _holds_credential(family: Family[Any]) -> bool:
    """Whether its bare value, or each of its members, is a credential: by its name, or because it names such a key."""
    listed = any(relation.member in secret_placeholders(relation.source) for relation in family.lists)
    return listed or is_credential(family.name)


def _names_credential(family: Family[Any]) -> bool:
    """Whether its value as a whole is a credential in the key of another family."""
    return any(
        origin is not None and origin.kind == "value" and name in secret_placeholders(relation.target)
        for relation in (*family.owns, *family.leads_to)
        for name, origin in relation.origins.items()
    )


def credential_fields(family: Family[Any]) -> frozenset[str]:
    """The stored names of fields that are credentials in the keys of other families."""
    return frozenset(
        family.stored_name(origin.name)
        for relation in (*family.owns, *family.leads_to)
        for name, origin in relation.origins.items()
        if origin is not None and origin.kind == "field" and name in secret_placeholders(relation.target)
    )


def _open_properties(schema: Any) -> Iterable[str]:
    """The names of all fields in a JSON Schema that are not sealed, at any depth."""
    if isinstance(schema, Mapping):
        own = schema.get("properties")
        if isinstance(own, Mapping):
            yield from (name for name, one in own.items() if not is_sealed_shape(one))
        for one in schema.values():
            yield from _open_properties(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _open_properties(one)


def is_sealed_shape(schema: Any) -> bool:
    """Whether a field of this JSON Schema is sealed, or one of its alternatives is."""
    if not isinstance(schema, Mapping):
        return False
    return schema.get("format") == "sealed" or any(map(is_sealed_shape, schema.get("anyOf", ())))


def _hide_fields(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _hide_whole(one) if name in names or is_credential(str(name)) else _hide_fields(one, names)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_hide_fields(one, names) for one in value]
    return value


def _hide_whole(value: Any) -> Any:
    """A credential hidden, whatever its type: a number or a list may be one as well."""
    return value if value is None or isinstance(value, bool) or value == _SEALED else HIDDEN


def is_partly_hidden(shown: Any) -> bool:
    """Whether something in this shown value is hidden: then neither its bytes nor a form may show it."""
    if isinstance(shown, Mapping):
        return any(map(is_partly_hidden, shown.values()))
    if isinstance(shown, list):
        return any(map(is_partly_hidden, shown))
    return shown in (HIDDEN, _SEALED)


def is_kept(family: Family[Any], path: Sequence[str], schema: Mapping[str, Any], shown: Any) -> bool:
    """Whether a form leaves a field as it is: it is sealed or a credential, or something in it, as shown, is hidden."""
    if is_sealed_shape(schema) or is_credential(path[-1]) or path[0] in credential_fields(family):
        return True
    return is_partly_hidden(shown)


def _hide_texts(value: Any) -> Any:
    """Every text in it hidden; scores and counts remain."""
    if isinstance(value, str):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _hide_texts(one) for name, one in value.items()}
    return [_hide_texts(one) for one in value] if isinstance(value, list) else value
