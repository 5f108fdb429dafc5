"""Value profiles: what stored values have in common, and the type that reads all of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any, Final

from keystead.schema.codec.numbers import JSON_NUMBER
from keystead.schema.first_contents import Beginning
from keystead.schema.infer.draft import DraftField, DraftModel, class_name

_MOST_FIELDS: Final = 60
_MOST_TEXTS: Final = 8
LARGEST: Final = 64_000  # bytes of a value that is looked into
_DEEPEST: Final = 6
_ENUM_VALUES: Final = 40  # values before few distinct texts count as an enumeration
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,30}")
_TIME_NAME: Final = re.compile(
    r"(?i)(?:^|_)(?:at|ms|time|timestamp|since|until|exp|iat|nbf|date|created|updated|seen|expires?|ends?|began|start|due)$"
    r"|(?:At|Ms|Time|Since|Until|Date|Start|End|Expires|Expiry|Created|Updated|Seen)$"
)


class _Bytes:
    """A stored value that is not text."""


class _LongObject:
    """What seems to be a JSON object, too long to be read. Beside shorter ones it is one of them."""


class _LongList:
    """The same for a list."""


def decode_value(data: bytes) -> Any:
    """A stored value: JSON objects and lists, canonical numbers and booleans, text, or `_Bytes`."""
    if isinstance(data, Beginning):
        return _decode_beginning(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _Bytes()
    if text[:1] in ("{", "[") and len(data) <= LARGEST:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text):
        return int(text)
    return float(text) if len(text) < 40 and JSON_NUMBER.fullmatch(data) else text


def _decode_beginning(data: Beginning) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:  # not merely a character that is cut
            return _Bytes()
        text = data[: error.start].decode()
    return _LongObject() if text[:1] == "{" else _LongList() if text[:1] == "[" else text


class Profile:
    """The values at one place: their types, and for texts, objects and lists what they contain."""

    __slots__ = ("count", "fields", "is_map", "items", "largest", "smallest", "texts", "times", "types")

    def __init__(self) -> None:
        self.count = 0
        self.types: Counter[str] = Counter()
        self.texts: Counter[str] | None = Counter()  # None: too many different ones
        self.times: Counter[str] = Counter()  # of texts: how many are times, dates, UUIDs
        self.smallest, self.largest = 1 << 70, -(1 << 70)
        self.fields: dict[str, Profile] = {}
        self.items: Profile | None = None
        self.is_map = False

    def add(self, value: Any, depth: int = 0) -> None:
        self.count += 1
        kind = type(value).__name__
        self.types[kind] += 1
        if isinstance(value, str):
            self._add_text(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)
        elif isinstance(value, dict) and depth < _DEEPEST:
            for name, one in value.items():
                if name in self.fields or len(self.fields) < _MOST_FIELDS:
                    self.fields.setdefault(name, Profile()).add(one, depth + 1)
                else:
                    self.is_map = True
        elif isinstance(value, list) and depth < _DEEPEST:
            self.items = self.items or Profile()
            for one in value[:50]:
                self.items.add(one, depth + 1)

    def _add_text(self, text: str) -> None:
        if self.texts is not None:
            self.texts[text[:40]] += 1
            if len(self.texts) > _MOST_TEXTS:
                self.texts = None
        if len(text) <= 40:
            for name, fits in _TEXT_TYPES.items():
                if fits(text):
                    self.times[name] += 1

    def merge(self, other: Profile) -> None:
        self.count += other.count
        self.types += other.types
        self.times += other.times
        if self.texts is not None:
            self.texts = None if other.texts is None else self.texts + other.texts
            if self.texts is not None and len(self.texts) > _MOST_TEXTS:
                self.texts = None
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)
        self.is_map = self.is_map or other.is_map
        for name, profile in other.fields.items():
            if name in self.fields:
                self.fields[name].merge(profile)
            elif len(self.fields) < _MOST_FIELDS:
                self.fields[name] = profile
            else:
                self.is_map = True
        if self.items is None:
            self.items = other.items
        elif other.items is not None:
            self.items.merge(other.items)

    @property
    def kinds(self) -> frozenset[str]:
        """The types of the values, without null."""
        kinds = frozenset(self.types) - {"NoneType"}
        if len(kinds) < 2 and not kinds & _LONG.keys():
            return kinds
        return frozenset(_LONG[kind] if _LONG.get(kind) in kinds else _TEXT.get(kind, kind) for kind in kinds)

    @property
    def nulls(self) -> int:
        return self.types["NoneType"]

    @property
    def looks_like_map(self) -> bool:
        """Whether its names are data, such as ids, rather than fields."""
        if self.is_map or not self.fields:
            return True
        rare = sum(one.count * 4 < self.count for one in self.fields.values())
        odd = sum(not _WORD.fullmatch(name) for name in self.fields)
        return odd * 2 > len(self.fields) or (rare * 2 > len(self.fields) > 6)

    @property
    def is_time(self) -> bool:
        """Whether all values may be moments: a deadline may be one of them."""
        if self.kinds == {"int"}:
            return self.smallest >= 1_000_000_000 and self.largest < 5_000_000_000_000
        return self.kinds == {"str"} and self.times["IsoTime"] == self.types["str"]


def _is_iso_time(text: str) -> bool:
    if len(text) < 20 or text[10] != "T":
        return False
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_iso_date(text: str) -> bool:
    try:
        return len(text) == 10 and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_LONG: Final = {"_LongObject": "dict", "_LongList": "list"}
_TEXT: Final = dict.fromkeys(_LONG, "str")
_TEXT_TYPES: Final[dict[str, Callable[[str], object]]] = {
    "IsoTime": _is_iso_time,
    "date": _is_iso_date,
    "UUID": _UUID.fullmatch,
}


class ModelNames:
    """The models of a draft, each under a free name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.models: list[DraftModel] = []
        self._taken = set(taken)

    def add(self, hint: str, fields: tuple[DraftField, ...], doc: str) -> str:
        for model in self.models:
            if model.fields == fields and model.name.startswith(class_name(hint)):
                return model.name
        name = class_name(hint, self._taken)
        self._taken.add(name)
        self.models.append(DraftModel(name, fields, doc))
        return name


def type_text(profile: Profile, hint: str, models: ModelNames, name: str = "") -> str:
    """The type that reads all values of a profile inside a model. `hint` names new models, `name` is the field."""
    kinds = profile.kinds
    if kinds == {"dict"}:
        return object_type(profile, hint, models)
    if kinds == {"list"}:
        items = profile.items
        of_items = "Any" if items is None or not items.count else type_text(items, _singular(hint), models)
        if items is not None and items.nulls and of_items != "Any":
            of_items = f"{of_items} | None"
        return f"list[{of_items}]"
    if kinds == {"str"}:
        return _text_type(profile)
    if kinds == {"int"}:
        return _integer_type(profile, name)
    if kinds <= {"int", "float"} and kinds:
        return "float"
    return "bool" if kinds == {"bool"} else "Any"


def object_type(profile: Profile, hint: str, models: ModelNames) -> str:
    """A model of the fields of objects, or a dict if their names are data."""
    if profile.looks_like_map:
        joined = Profile()
        for one in profile.fields.values():
            joined.merge(one)
        of_values = type_text(joined, f"{hint}_entry", models) if profile.fields else "Any"
        return f"dict[str, {of_values}{' | None' if joined.nulls and of_values != 'Any' else ''}]"
    fields = tuple(field_of(name, one, profile.types["dict"], hint, models) for name, one in profile.fields.items())
    return models.add(hint, fields, "")


def field_of(name: str, profile: Profile, out_of: int, hint: str, models: ModelNames) -> DraftField:
    """A field of a model. One that is missing in some values is optional; null in some is nullable."""
    type_ = type_text(profile, f"{hint}_{name}", models, name)
    return DraftField(name, type_, profile.count >= out_of, bool(profile.nulls) and type_ != "Any")


def _text_type(profile: Profile) -> str:
    count = profile.types["str"]
    for name in _TEXT_TYPES:
        if profile.times[name] == count:
            return name
    texts = profile.texts
    is_enum = texts is not None and count >= _ENUM_VALUES and min(texts.values()) >= 3 and len(texts) > 1
    if is_enum and texts is not None and all(map(_WORD.fullmatch, texts)):
        return "Literal[" + ", ".join(f'"{text}"' for text in sorted(texts)) + "]"
    return "str"


def _integer_type(profile: Profile, name: str) -> str:
    if _TIME_NAME.search(name):
        if profile.smallest >= 1_000_000_000_000 and profile.largest < 5_000_000_000_000:
            return "EpochMs"
        if profile.smallest >= 1_000_000_000 and profile.largest < 5_000_000_000:
            return "EpochSeconds"
    return "int"


def _singular(text: str) -> str:
    return text[:-1] if text.endswith("s") and not text.endswith("ss") else f"{text}_item"
