"""The kind and the value type of a family, from the evidence of its keys."""

from __future__ import annotations

from typing import Final

from keystead.schema.infer.draft import DraftField, Kind
from keystead.schema.infer.evidence import Evidence
from keystead.schema.infer.value_profile import ModelNames, Profile, type_text

_KINDS: Final[dict[str, Kind]] = {
    "hash": "Hash",
    "set": "Set",
    "zset": "SortedSet",
    "list": "List",
    "stream": "Log",
}
_TEXTS: Final = frozenset({"str", "int", "float", "bool"})


def kind_of(evidence: Evidence) -> Kind:
    if evidence.kind == "string":
        return "Counter" if evidence.is_counter else "Value"
    return _KINDS[evidence.kind]


def value_type(evidence: Evidence, kind: Kind, hint: str, models: ModelNames) -> str:
    """The type of the value, the fields, the members or the items, as text; empty for a Counter."""
    match kind:
        case "Counter":
            return ""
        case "Hash":
            return _hash_type(evidence.profile, hint, models)
        case "Set" | "SortedSet":
            return _member_type(evidence.entries)
        case "List" | "Log":
            return stored_type(evidence.entries, f"{hint}_item", models)
        case _:
            return stored_type(evidence.profile, hint, models)


def stored_type(profile: Profile, hint: str, models: ModelNames, name: str = "") -> str:
    """The type of what is stored as a whole: JSON containers, one scalar type, text or bytes."""
    kinds = profile.kinds
    if "_Bytes" in kinds:
        return "bytes"
    if kinds in ({"dict"}, {"list"}, {"int"}, {"float"}, {"int", "float"}, {"bool"}):
        return type_text(profile, hint, models, name)
    return type_text(profile, hint, models, name) if kinds == {"str"} else "str"


def _member_type(profile: Profile) -> str:
    if "_Bytes" in profile.kinds:
        return "bytes"
    return "int" if profile.kinds == {"int"} else "str"


def _hash_type(profile: Profile, hint: str, models: ModelNames) -> str:
    if profile.looks_like_map:
        joined = Profile()
        for one in profile.fields.values():
            joined.merge(one)
        return f"dict[str, {stored_type(joined, f'{hint}_field', models)}]"
    fields = tuple(
        DraftField(name, stored_type(one, f"{hint}_{name}", models, name), one.count >= profile.types["dict"])
        for name, one in profile.fields.items()
    )
    return models.add(hint, fields, "")


def time_fields(type_: str, models: ModelNames) -> dict[str, str]:
    """The fields of a model that hold moments, by name, and their types."""
    for model in models.models:
        if model.name == type_:
            return {one.name: one.type for one in model.fields if one.type in ("EpochMs", "EpochSeconds", "IsoTime")}
    return {}
