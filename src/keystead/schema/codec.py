"""Values to bytes and back: a value is stored as its own text, or as the JSON that JavaScript's JSON.stringify writes.

    str                     its text, in UTF-8, without quotes
    bytes                   as they are
    int, bool, float        `42`, `true`, `0.5`
    datetime, UUID, Literal what stands between the quotes in JSON
    models, lists, dicts    compact JSON, fields in the order of their declaration, None as `null`

Reading is strict: only what could have been written is read. What cannot be written is a `BadValue` before anything
is sent; what cannot be read is `Unreadable`. No sentence of either holds a value, since the value may be a secret.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import math
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, NewType, TypeVar, Union, get_args, get_origin, overload

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, from_json, to_json

from keystead.errors import BadDeclaration, BadValue, Unreadable, shown
from keystead.schema.seal import (
    HIDDEN,
    NO_SEALING,
    SEAL_ERROR,
    SEALED_MARK,
    KeyRing,
    NoSealing,
    Opening,
    Sealing,
)
from keystead.schema.times import INTEGER_ERROR, TIME_ERROR

__all__ = ["Codec", "OmittedIfNone", "Versions", "codec_for", "without_none"]

T = TypeVar("T")
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def _is_none(value: object) -> bool:
    return value is None


OmittedIfNone = Annotated[T | None, Field(exclude_if=_is_none)]
"""`short_token: OmittedIfNone[str] = None`: while the field is None, it is left out of the JSON, not written null."""


@dataclasses.dataclass(frozen=True)
class Versions:
    """The versions of a JSON object: its `field` says which it is, and upgrades lead from the old ones to `current`.

    `upgrades[1]` takes the plain dict of version 1 and returns that of version 2. An object without the field is of the
    `oldest` version. What is written is always `current`. A sealed field is still sealed in the dict: an upgrade may
    give it another name, and passes a plain value that is to be sealed from now on through `unsealed`.
    """

    field: str
    current: int
    upgrades: Mapping[int, Upgrade]
    oldest: int = 1

    def __post_init__(self) -> None:
        if not self.field or type(self.current) is not int or type(self.oldest) is not int:
            raise _bad_version(
                "versions need the name of a field and whole numbers", "write Versions('ver', 2, {1: ...})"
            )
        steps = set(range(self.oldest, self.current))
        if self.current < self.oldest or set(self.upgrades) != steps:
            wanted = ", ".join(map(str, sorted(steps))) or "none"
            raise _bad_version(
                f"the upgrades do not lead from version {self.oldest} to {self.current}",
                f"give exactly one for each version in between: {wanted}",
            )


class Codec(ABC, Generic[T]):
    """How the values of one type are stored. Made by `codec_for`."""

    type: Any
    """The declared type."""
    sealed: bool = False
    """Whether any field, at any depth, is sealed. Then `encode` and `decode` need a ring."""
    versions: Versions | None = None
    field_names: frozenset[str] = frozenset()
    """The names that the fields of a model have in Python; none for other types."""

    @abstractmethod
    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        """The bytes to store under `key`, in its field `name` if the key is a hash. Raises `BadValue`."""

    @abstractmethod
    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        """The value of what is stored. Raises `Unreadable`."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of what is written."""

    @abstractmethod
    def describe(self) -> str:
        """The shape of the value in a few words, for the key document."""

    def shown(self, data: bytes, key: str) -> Any:
        """What is stored, as JSON that an operator may see: sealed fields as `(sealed)`, and nothing is opened.

        For what cannot be read it is `{"unreadable": reason}`; nothing is raised.
        """
        try:
            self.decode(data, key)
        except Unreadable as error:
            return {"unreadable": str(error).removeprefix(f"{shown(key)}: ")}
        return self._picture(data)

    def version_of(self, data: bytes) -> int | None:
        """The version that a stored object says it is; `None` if the family has no versions or this is no object."""
        return None

    def _picture(self, data: bytes) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}


@overload
def codec_for(type_: type[T], *, versions: Versions | None = None, where: str = "") -> Codec[T]: ...
@overload
def codec_for(type_: Any, *, versions: Versions | None = None, where: str = "") -> Codec[Any]: ...
def codec_for(type_: Any, *, versions: Versions | None = None, where: str = "") -> Codec[Any]:
    """The codec of a type. `where` names the family in the sentence of an error.

    Raises `BadDeclaration` for a type that cannot be stored and read back, and for versions that do not fit it.
    The models of sealed fields leave those out of their `repr` from now on.
    """
    while isinstance(type_, NewType):
        type_ = type_.__supertype__
    place = f"{where}: " if where else ""
    for plain, codec in _PLAIN:
        if type_ is plain and versions is None:
            return codec()
    blueprint = _Blueprint(type_, place)
    if versions is not None:
        return _Record(blueprint, versions)
    if blueprint.kinds <= _CONTAINERS:
        return _Record(blueprint, None) if blueprint.sealed else _Json(blueprint)
    if blueprint.sealed:
        return _SealedText(blueprint)
    [kind] = blueprint.kinds
    return _Scalar(blueprint, _FORMS[kind])


def without_none(type_: Any) -> Any:
    """`str` of `str | None`, for a field that is left out while it is None. Annotations stay; other types too."""
    origin = get_origin(type_)
    if origin is Annotated:
        inner, *metadata = get_args(type_)
        return Annotated[(without_none(inner), *metadata)]
    if origin in (Union, types.UnionType):
        kept = tuple(choice for choice in get_args(type_) if choice is not types.NoneType)
        return Union[kept]  # noqa: UP007 (how many there are is not known here)
    return type_


# --- Plain types: no Pydantic, nothing but the bytes -----------------------------------------------------


def _is_int(value: object) -> bool:
    return isinstance(value, int) and value is not True and value is not False


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_int(value)


class _Plain(Codec[T]):
    schema: ClassVar[JsonSchemaValue]
    shape: ClassVar[str]

    def json_schema(self) -> dict[str, Any]:
        return dict(self.schema)

    def describe(self) -> str:
        return self.shape


class _Text(_Plain[str]):
    type = str
    schema: ClassVar[JsonSchemaValue] = {"type": "string"}
    shape = "string"

    def encode(self, value: str, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                pass
            raise _bad_value(key, name, "holds half of a surrogate pair, which is no Unicode text")
        raise _wrong_type(key, name, "str", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
        raise _unreadable(key, name, data, _NOT_TEXT)


class _Bytes(_Plain[bytes]):
    type = bytes
    schema: ClassVar[JsonSchemaValue] = {"type": "string", "format": "binary"}
    shape = "bytes"

    def encode(self, value: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if isinstance(value, bytes):
            return bytes(value)
        raise _wrong_type(key, name, "bytes", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        return data


class _Integer(_Plain[int]):
    type = int
    schema: ClassVar[JsonSchemaValue] = {"type": "integer"}
    shape = "integer"

    def encode(self, value: int, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if _is_int(value):
            try:
                return b"%d" % value
            except ValueError:
                pass
            raise _bad_value(key, name, "has more digits than Python writes")
        raise _wrong_type(key, name, "int", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> int:
        try:
            number = int(data)
            if b"%d" % number == data:
                return number
        except ValueError:
            pass
        raise _unreadable(key, name, data, _NOT_INTEGER)

    def _picture(self, data: bytes) -> int:
        return int(data)


class _Number(_Plain[float]):
    type = float
    schema: ClassVar[JsonSchemaValue] = {"type": "number"}
    shape = "number"

    def encode(self, value: float, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if _is_number(value):
            try:
                return _js_number(float(value)).encode()
            except (ValueError, OverflowError):
                pass
            raise _bad_value(key, name, "is NaN, infinite or too large, which JSON cannot say")
        raise _wrong_type(key, name, "float", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> float:
        if _JSON_NUMBER.fullmatch(data):
            number = float(data)
            if math.isfinite(number):
                return number
        raise _unreadable(key, name, data, _NOT_NUMBER)

    def _picture(self, data: bytes) -> float:
        return float(data)


class _Boolean(_Plain[bool]):
    type = bool
    schema: ClassVar[JsonSchemaValue] = {"type": "boolean"}
    shape = '"true" | "false"'

    def encode(self, value: bool, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if value is True:
            return b"true"
        if value is False:
            return b"false"
        raise _wrong_type(key, name, "bool", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bool:
        if data == b"true":
            return True
        if data == b"false":
            return False
        raise _unreadable(key, name, data, _NOT_BOOLEAN)

    def _picture(self, data: bytes) -> bool:
        return data == b"true"


_PLAIN: tuple[tuple[Any, Callable[[], Codec[Any]]], ...] = (
    (str, _Text),
    (bytes, _Bytes),
    (int, _Integer),
    (float, _Number),
    (bool, _Boolean),
)

_NOT_TEXT = "is not UTF-8 text"
_NOT_INTEGER = "is not an integer in plain digits"
_NOT_NUMBER = "is not a JSON number"
_NOT_BOOLEAN = "is neither true nor false"
_JSON_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


# --- Types that Pydantic knows: JSON ---------------------------------------------------------------------


class _Modelled(Codec[T]):
    """What all codecs share that ask Pydantic."""

    def __init__(self, blueprint: _Blueprint) -> None:
        self.type = blueprint.type
        self.sealed = blueprint.sealed
        self._blueprint = blueprint
        self._check = blueprint.adapter.validator.validate_python
        self._validate = blueprint.adapter.validator.validate_json
        self._serialize = blueprint.adapter.serializer.to_json

    def json_schema(self) -> dict[str, Any]:
        return copy.deepcopy(self._blueprint.schema)

    def describe(self) -> str:
        return _shape(self.json_schema())

    def _read(self, json_text: bytes, opening: Opening | None, key: str, name: str, stored: bytes) -> T:
        try:
            value: T = self._validate(json_text, strict=True, by_alias=True, context=opening)
        except ValidationError as error:
            reason = self._blueprint.reason(_problems(error))
        except Exception as error:  # a validator of the model's own may raise anything
            reason = f"was refused by its own validator ({type(error).__name__})"
        else:
            return value
        raise _unreadable(key, name, stored, reason)


_NO_RING = "has sealed fields, but there are no keys for them; give seal=KeyRing(...)"


class _Form:
    """How a kind of JSON scalar stands in the store, without quotes."""

    def __init__(self, write: Callable[[Any], bytes], as_json: Callable[[bytes], bytes | None], reason: str) -> None:
        self.write = write
        self.as_json = as_json
        self.reason = reason


def _text_as_json(data: bytes) -> bytes | None:
    try:
        return to_json(data.decode())
    except UnicodeDecodeError:
        return None


_FORMS = {
    "string": _Form(lambda value: str(value).encode(), _text_as_json, _NOT_TEXT),
    "integer": _Form(
        lambda value: b"%d" % value,
        lambda data: data if re.fullmatch(rb"0|-?[1-9][0-9]*", data) else None,
        _NOT_INTEGER,
    ),
    "number": _Form(
        lambda value: _js_number(float(value)).encode(),
        lambda data: data if _JSON_NUMBER.fullmatch(data) else None,
        _NOT_NUMBER,
    ),
    "boolean": _Form(
        lambda value: b"true" if value else b"false",
        lambda data: data if data in (b"true", b"false") else None,
        _NOT_BOOLEAN,
    ),
}


class _Scalar(_Modelled[T]):
    """A type whose JSON is one text, number or boolean: datetime, UUID, Enum, Literal, a constrained str or int."""

    def __init__(self, blueprint: _Blueprint, form: _Form) -> None:
        super().__init__(blueprint)
        self._form = form
        self._to_python = blueprint.adapter.serializer.to_python

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        try:
            checked = self._check(value, strict=True)
            return self._form.write(self._to_python(checked, mode="json", warnings="error"))
        except Exception as error:
            reason = self._blueprint.why_not(error, value)
        raise _bad_value(key, name, reason)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        json_text = self._form.as_json(data)
        if json_text is None:
            raise _unreadable(key, name, data, self._form.reason)
        return self._read(json_text, None, key, name, data)

    def _picture(self, data: bytes) -> Any:
        return from_json(self._form.as_json(data) or b"null")


class _SealedText(_Modelled[T]):
    """A value that is sealed as a whole: the sealed text itself is stored."""

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if ring is None:
            raise _bad_value(key, name, _NO_RING)
        sealing = Sealing(ring, key, name)
        try:
            self._check(value, strict=True)
            return sealing.finish(self._serialize(value, context=sealing, warnings="error"))[1:-1]
        except Exception as error:
            reason = sealing.problem or self._blueprint.why_not(error, value)
        raise _bad_value(key, name, reason)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if ring is None:
            raise _unreadable(key, name, data, _NO_RING)
        json_text = _text_as_json(data)
        if json_text is None:
            raise _unreadable(key, name, data, _NOT_TEXT)
        return self._read(json_text, Opening(ring, key, name, data.decode()), key, name, data)

    def shown(self, data: bytes, key: str) -> Any:
        if KeyRing.sealed_with(data.decode("utf-8", "replace")) is None:
            return {"unreadable": "the value is not a sealed text"}
        return HIDDEN


class _Json(_Modelled[T]):
    """A model, or a container of models and plain types, as JSON."""

    def __init__(self, blueprint: _Blueprint) -> None:
        super().__init__(blueprint)
        self.field_names = blueprint.field_names
        self._class = blueprint.class_
        self._floats = blueprint.floats
        # A model that was built without validation may lack fields; with one it has them all.
        is_model = isinstance(self._class, type) and issubclass(self._class, BaseModel)
        self._fewest_fields = len(blueprint.field_names) if is_model else 0

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        return self._written(value, NO_SEALING, key, name)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if self._floats and (b"NaN" in data or b"Infinity" in data):
            self._tree(data, key, name)
        return self._read(data, None, key, name, data)

    def _written(self, value: Any, sealing: Sealing | NoSealing, key: str, name: str) -> bytes:
        """The JSON of a value, as it was given.

        A container is validated. A model has been; only the types of its fields are looked at again, since they may
        have been set later.
        """
        if self._class is None:
            self._validated(value, key, name)
        elif not isinstance(value, self._class):
            raise _wrong_type(key, name, self._class.__name__, value)
        elif self._fewest_fields and len(value.__dict__) < self._fewest_fields:
            missing = ", ".join(sorted(self.field_names - value.__dict__.keys()))
            raise _bad_value(key, name, f"has no {missing}")
        try:
            data = self._serialize(value, context=sealing, warnings="error", by_alias=True, round_trip=True)
        except Exception as error:
            reason = sealing.problem or self._blueprint.why_not(error, value, sealing)
        else:
            return self._numbers_checked(data, value, key, name) if self._floats else data
        raise _bad_value(key, name, reason)

    def _validated(self, value: Any, key: str, name: str) -> None:
        try:
            self._check(value, strict=True, by_alias=False, by_name=True)
        except Exception as error:
            reason = self._blueprint.why_not(error, value)
        else:
            return
        raise _bad_value(key, name, reason)

    def _numbers_checked(self, data: bytes, value: Any, key: str, name: str) -> bytes:
        # Pydantic writes NaN as null, so only where there is a null do we have to look.
        if b"null" in data or b"NaN" in data or b"Infinity" in data:
            plain = self._blueprint.adapter.serializer.to_python(value, warnings=False, by_alias=True, round_trip=True)
            if (path := _not_finite(plain)) is not None:
                place = f" in {self._blueprint.place_of(path)}" if path else ""
                raise _bad_value(key, name, f"holds NaN or an infinite number{place}, which JSON cannot say")
        return _js_numbers(data)

    def _tree(self, data: bytes, key: str, name: str) -> Any:
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError as error:
            reason = f"is not JSON: {error}"
        raise _unreadable(key, name, data, reason)

    def _picture(self, data: bytes) -> Any:
        return from_json(data)


class _Record(_Json[T]):
    """JSON with sealed fields, with versions, or with both. It is parsed twice: once to see where things stand."""

    def __init__(self, blueprint: _Blueprint, versions: Versions | None) -> None:
        super().__init__(blueprint)
        self.versions = versions
        self._version_name: str | None = None
        self._stamp = b""
        if versions is not None:
            self._version_name = blueprint.version_name(versions)
            self._stamp = to_json(versions.field) + b":%d}" % versions.current

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        stamped = self._stamped(value) if self._version_name else value
        if not self.sealed:
            data = self._written(stamped, NO_SEALING, key, name)
        elif ring is None:
            raise _bad_value(key, name, _NO_RING)
        else:
            sealing = Sealing(ring, key, name)
            data = sealing.finish(self._written(stamped, sealing, key, name))
        if self._stamp and not self._version_name:
            return data[:-1] + (b"," if data != b"{}" else b"") + self._stamp
        return data

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if self.sealed and ring is None:
            raise _unreadable(key, name, data, _NO_RING)
        opening, json_text = self._prepared(data, key, ring, name)
        return self._read(json_text, opening, key, name, data)

    def shown(self, data: bytes, key: str) -> Any:
        try:
            opening, json_text = self._prepared(data, key, None, "")
            reason = self._reason_without_ring(json_text, opening)
        except Unreadable as error:
            return {"unreadable": str(error).removeprefix(f"{shown(key)}: ")}
        if reason is not None:
            return {"unreadable": f"the value {reason}"}
        return _hidden(from_json(json_text), opening)

    def json_schema(self) -> dict[str, Any]:
        schema = super().json_schema()
        if self.versions is not None and not self._version_name:
            written = _resolved(schema, schema.get("$defs", {}))
            written.setdefault("properties", {})[self.versions.field] = {
                "type": "integer",
                "const": self.versions.current,
            }
            written["required"] = [*written.get("required", ()), self.versions.field]
        return schema

    def version_of(self, data: bytes) -> int | None:
        if self.versions is None:
            return None
        try:
            tree = from_json(data)
        except ValueError:
            return None
        return _version(tree, self.versions) if isinstance(tree, dict) else None

    def _stamped(self, value: Any) -> Any:
        """A copy that says that it is of the current version, if the value does not."""
        versions, name = self.versions, self._version_name
        if versions is None or name is None:
            return value
        if isinstance(value, dict):
            return value | {name: versions.current}
        if self._class is None or not isinstance(value, self._class) or getattr(value, name, None) == versions.current:
            return value
        stamped = copy.copy(value)
        # Past any validation or freezing of its own: the copy only goes to the store.
        object.__setattr__(stamped, name, versions.current)
        return stamped

    def _prepared(self, data: bytes, key: str, ring: KeyRing | None, name: str) -> tuple[Opening | None, bytes]:
        """What is needed to open the sealed fields, and the JSON of the current version."""
        tree = self._tree(data, key, name)
        opening = Opening(ring, key, name, tree) if self.sealed else None
        if self.versions is None:
            return opening, data
        try:
            return opening, self._upgraded(tree, data, opening, self.versions)
        except _Refused as error:
            reason = str(error)
        raise _unreadable(key, name, data, reason)

    def _upgraded(self, tree: Any, data: bytes, opening: Opening | None, versions: Versions) -> bytes:
        if not isinstance(tree, dict):
            raise _Refused("is not a JSON object")
        version = _version(tree, versions)
        if version is None or version < versions.oldest:
            raise _Refused(f"has no version that is known: {versions.field} is not {versions.oldest} or more")
        if version > versions.current:
            raise _Refused(
                f"is of version {version}, which a newer program wrote; this one reads up to version {versions.current}"
            )
        if version == versions.current and self._version_name:
            return data
        if version == versions.current and data.endswith(b"," + self._stamp):
            return data[: -len(self._stamp) - 1] + b"}"  # as `encode` wrote it; nothing else can end so
        for step in range(version, versions.current):
            tree = _upgrade(tree, step, versions)
        if self._version_name:
            tree[versions.field] = versions.current
        else:
            tree.pop(versions.field, None)
        return _as_json(tree, opening)

    def _reason_without_ring(self, json_text: bytes, opening: Opening | None) -> str | None:
        """Why the value cannot be read, as far as that can be said without opening what is sealed."""
        try:
            self._validate(json_text, strict=True, by_alias=True, context=opening)
        except ValidationError as error:
            # What is outside a sealed field (a pattern, a validator) was asked about `(sealed)`, not about its value.
            problems = [
                problem
                for problem, given in zip(_problems(error), error.errors(), strict=True)
                if not (opening and opening.hides(given["input"]))
            ]
            return self._blueprint.reason(problems) if problems else None
        except Exception as error:
            return f"was refused by its own validator ({type(error).__name__})"
        return None


class _Refused(Exception):
    """Why a stored value is not taken, to be said together with its key."""


def _version(tree: dict[str, Any], versions: Versions) -> int | None:
    version = tree.get(versions.field, versions.oldest)
    return version if type(version) is int else None


def _upgrade(tree: dict[str, Any], version: int, versions: Versions) -> dict[str, Any]:
    try:
        upgraded: Any = versions.upgrades[version](tree)
    except Exception as error:  # whatever the upgrade of a user raises; its sentence may hold the value
        reason = f"failed with {type(error).__name__}"
    else:
        if isinstance(upgraded, dict):
            return upgraded
        reason = "did not return a dict"
    raise _Refused(f"is of version {version}, and its upgrade to version {version + 1} {reason}")


def _as_json(tree: dict[str, Any], opening: Opening | None) -> bytes:
    try:
        return json.dumps(tree, ensure_ascii=False, allow_nan=False, default=opening.give if opening else None).encode()
    except (TypeError, ValueError):
        pass
    raise _Refused("was upgraded to something that is not JSON")


def _hidden(tree: Any, opening: Opening | None) -> Any:
    if isinstance(tree, dict):
        return {name: _hidden(value, opening) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_hidden(value, opening) for value in tree]
    return HIDDEN if opening and opening.hides(tree) else tree


# --- What Pydantic knows of a type -----------------------------------------------------------------------

_CONTAINERS = frozenset({"object", "array"})
_ADVICE = "write str, bytes, int, float, bool, a Pydantic model, a dataclass, or a list or dict of those"


class _StoredSchema(GenerateJsonSchema):
    """The JSON Schema of what is written: with fields that have a default, and without computed fields."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as Pydantic declares it)

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        if field.get("serialization_exclude_if") is not None:
            return False
        return field["type"] != "typed-dict-field" or field.get("required", total)

    def model_fields_schema(self, schema: core_schema.ModelFieldsSchema) -> JsonSchemaValue:
        schema = schema.copy()
        schema["computed_fields"] = []
        return super().model_fields_schema(schema)

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        schema = schema.copy()
        schema["computed_fields"] = []
        return super().dataclass_args_schema(schema)

    def model_field_schema(self, schema: core_schema.ModelField) -> JsonSchemaValue:
        return _without_null(schema, super().model_field_schema(schema))

    def dataclass_field_schema(self, schema: core_schema.DataclassField) -> JsonSchemaValue:
        return _without_null(schema, super().dataclass_field_schema(schema))


def _without_null(
    field: core_schema.ModelField | core_schema.DataclassField, schema: JsonSchemaValue
) -> JsonSchemaValue:
    """A field that is left out while it is None is never null."""
    if field.get("serialization_exclude_if") is not _is_none or "anyOf" not in schema:
        return schema
    kept = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return rest | (kept[0] if len(kept) == 1 else {"anyOf": kept})


class _Blueprint:
    """A type as Pydantic understands it, looked over for what could not be stored and read back."""

    def __init__(self, type_: Any, where: str) -> None:
        self.type = type_
        self.where = where
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(type_)
            self.schema = self.adapter.json_schema(mode="serialization", schema_generator=_StoredSchema)
            core: Any = self.adapter.core_schema
        except (PydanticUserError, TypeError, NameError, ValueError) as error:
            raise self._bad(str(error).partition("\n")[0].partition(". ")[0].rstrip("."), _ADVICE) from None
        self._definitions = {node["ref"]: node for node in _nodes(core, {}) if isinstance(node.get("ref"), str)}
        nodes = list(_nodes(core, self._definitions))
        self.sealed = any(map(_is_sealed, nodes))
        self.floats = any(map(_may_hold_floats, nodes))
        self.names = frozenset(name for node in nodes for name in _all_names(node))
        self.kinds = self._kinds()
        root = self._root(core, _CLASSES)
        self.class_: type | None = root["cls"] if root else None
        is_root_model = bool(root and root.get("root_model"))
        self._root_fields = {} if is_root_model else self._root(core, _FIELDS) or {}
        self.field_names = frozenset(name for name, _ in _fields(self._root_fields))
        self.name = self.class_.__name__ if self.class_ else _shape(self.schema)
        for node in nodes:
            self._look_over(node)

    def reason(self, problems: list[_Problem]) -> str:
        """Why a value does not fit, with the places that are known by name, and without anything of the value."""
        said = [f"{self.place_of(p.path)}: {p.sentence}" if p.path else p.sentence for p in problems[:5]]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        return f"is no {self.name}: {'; '.join(said)}{more}"

    def why_not(self, error: Exception, value: Any, sealing: Sealing | NoSealing | None = None) -> str:
        """Why a value cannot be written."""
        if isinstance(error, ValidationError):
            return self.reason(_problems(error))
        # Pydantic's own sentence quotes the value. So each field is asked alone, and only names are taken.
        wrong = [name for name, _ in _fields(self._root_fields) if not self._is_writable(value, name, sealing)]
        fields = f" in {', '.join(wrong)}" if wrong else ""
        return f"holds something{fields} that does not fit its declaration, or that JSON cannot say"

    def _is_writable(self, value: Any, name: str, sealing: Sealing | NoSealing | None) -> bool:
        try:
            self.adapter.serializer.to_json(value, include={name}, context=sealing, warnings="error")
        except Exception:
            return False
        return True

    def place_of(self, path: Iterable[str | int]) -> str:
        """A path in a value, in which only declared names are said: other names are data."""
        return ".".join(str(part) if isinstance(part, int) or part in self.names else "*" for part in path)

    def version_name(self, versions: Versions) -> str | None:
        """The Python name of the field that holds the version; None if the type does not declare it."""
        if not self._root_fields:
            raise self._bad_version("only a model, a dataclass or a TypedDict can have versions", "write one of those")
        for name, field in _fields(self._root_fields):
            if _stored_name(name, field) == versions.field:
                declared = self._resolved(self._resolved(self.schema)["properties"][versions.field])
                allowed = [declared["const"]] if "const" in declared else declared.get("enum", [versions.current])
                if declared.get("type") != "integer" or versions.current not in allowed:
                    advice = f"declare it as {name}: int = {versions.current}"
                    raise self._bad_version(f"its field {name} cannot hold version {versions.current}", advice)
                return name
        return None

    def _kinds(self) -> frozenset[str]:
        kinds = frozenset(_kinds_of(self.schema, self.schema.get("$defs", {})))
        if any(node.get("writeOnly") for node in _dicts(self.schema)):
            raise self._bad(
                "a secret type of Pydantic is written as asterisks", "write Sealed[str] instead of SecretStr"
            )
        if "binary" in kinds:
            raise self._bad("bytes are stored as they are, without constraints", "write bytes")
        if "null" in kinds:
            raise self._bad(
                "its value may be None", "leave out None: a key that is not there is read as None, and deleted for None"
            )
        if "anything" in kinds:
            raise self._bad("it does not say what is stored", _ADVICE)
        if len(kinds) != 1 and not kinds <= _CONTAINERS:
            raise self._bad("its values could not be told apart in the store", "put the choice into a field of a model")
        return kinds

    def _look_over(self, node: Mapping[str, Any]) -> None:
        for name, field in _fields(node):
            self._look_over_field(name, field, node.get("total", True))
        if node["type"] in _CLASSES:
            self._hide_sealed(node)
        if node["type"] == "dict" and any(map(_is_sealed, self._below(node.get("keys_schema")))):
            raise self._bad("the keys of a dict cannot be sealed", "seal its values, or the dict as a whole")
        if node["type"] == "union" and any(self._is_sealed_choice(choice) for choice in node["choices"]):
            raise self._bad("one choice of a union cannot be sealed", "seal the whole: Sealed[str | int]")
        if _is_sealed(node) and any(_is_sealed(inner) for inner in self._below(node["python_schema"])):
            raise self._bad("what is sealed holds a sealed field", "seal either the field or the whole")

    def _look_over_field(self, name: str, field: Mapping[str, Any], total: bool) -> None:
        stored, alias = _stored_name(name, field), field.get("validation_alias", name)
        read = {alias} if isinstance(alias, str) else {path[0] for path in _alias_paths(alias) if len(path) == 1}
        if stored not in read:
            raise self._bad(
                f"its field {name} is written as {stored!r} but not read under that name",
                f"write {name}: ... = Field(alias={stored!r})",
            )
        left_out = field.get("serialization_exclude") or field.get("serialization_exclude_if")
        may_be_absent = not field.get("required", total) or field["schema"]["type"] == "default"
        if left_out and not may_be_absent:
            raise self._bad(f"its field {name} may be left out but has no default", f"write {name}: ... = None")

    def _hide_sealed(self, node: Mapping[str, Any]) -> None:
        """Sees to it that the `repr` of a class leaves its sealed fields out."""
        owner = node["cls"]
        inner = self._root(node["schema"], _FIELDS)
        names = [n for n, field in _fields(inner or {}) if any(map(_is_sealed, self._below(field, crossing=False)))]
        if node.get("root_model") and any(map(_is_sealed, self._below(node["schema"], crossing=False))):
            raise self._bad(f"{owner.__name__} shows what it seals", "write Sealed[...] without a RootModel")
        for name in names:
            if issubclass(owner, BaseModel):
                owner.model_fields[name].repr = False
            elif any(field.name == name and field.repr for field in dataclasses.fields(owner)):
                raise self._bad(
                    f"{owner.__name__} shows its sealed {name} in its repr", f"write {name} = field(repr=False)"
                )

    def _root(self, node: Any, wanted: frozenset[str]) -> Any:
        """The node of one of these types that the schema is, whatever validators are wrapped around it."""
        while isinstance(node, dict) and node.get("type") not in wanted:
            node = self._definitions[node["schema_ref"]] if node["type"] == "definition-ref" else node.get("schema")
        return node

    def _below(self, schema: Any, crossing: bool = True) -> Iterator[dict[str, Any]]:
        return _nodes(schema, self._definitions, frozenset() if crossing else _CLASSES)

    def _is_sealed_choice(self, choice: Any) -> bool:
        node = choice[0] if isinstance(choice, tuple) else choice
        while node["type"] == "definition-ref":
            node = self._definitions[node["schema_ref"]]
        return _is_sealed(node)

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _resolved(schema, self.schema.get("$defs", {}))

    def _bad(self, what: str, advice: str) -> BadDeclaration:
        name = getattr(self.type, "__name__", None) if isinstance(self.type, type) else None
        return BadDeclaration(f"{self.where}{name or self.type} cannot be stored: {what}; {advice}", "bad-value-type")

    def _bad_version(self, what: str, advice: str) -> BadDeclaration:
        return _bad_version(f"{self.where}{what}", advice)


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _dicts(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _dicts(value)


# --- Core schemas: how Pydantic sees a type --------------------------------------------------------------

_FIELDS = frozenset({"model-fields", "typed-dict", "dataclass-args"})
_CLASSES = frozenset({"model", "dataclass"})
_NO_SCHEMAS = frozenset({"metadata", "default", "config", "expected"})


def _nodes(
    schema: Any, definitions: Mapping[str, Any], stop_at: frozenset[str] = frozenset(), seen: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Every schema at and below one, through the definitions it refers to, and not below the types of `stop_at`."""
    seen = set() if seen is None else seen
    if isinstance(schema, dict):
        kind = schema.get("type")
        is_schema = isinstance(kind, str)  # else it is a dict of schemas by name, and one of the names may be `type`
        if is_schema:
            if kind in stop_at:
                return
            if kind == "definition-ref" and schema["schema_ref"] not in seen:
                seen.add(schema["schema_ref"])
                yield from _nodes(definitions.get(schema["schema_ref"]), definitions, stop_at, seen)
            yield schema
        for name, value in schema.items():
            if not (is_schema and name in _NO_SCHEMAS):
                yield from _nodes(value, definitions, stop_at, seen)
    elif isinstance(schema, (list, tuple)):
        for value in schema:
            yield from _nodes(value, definitions, stop_at, seen)


def _fields(node: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The fields of a model, a TypedDict or a dataclass by their Python names; none for other nodes."""
    if node.get("type") not in _FIELDS:
        return ()
    fields = node["fields"]
    return fields.items() if isinstance(fields, dict) else ((field["name"], field) for field in fields)


def _stored_name(name: str, field: Mapping[str, Any]) -> str:
    return str(field.get("serialization_alias", name))


def _alias_paths(alias: list[Any]) -> list[list[Any]]:
    return alias if alias and isinstance(alias[0], list) else [alias]


def _all_names(node: Mapping[str, Any]) -> Iterator[str]:
    for name, field in _fields(node):
        yield name
        yield _stored_name(name, field)


def _is_sealed(node: Mapping[str, Any]) -> bool:
    return bool((node.get("metadata") or {}).get(SEALED_MARK))


def _may_hold_floats(node: Mapping[str, Any]) -> bool:
    """Whether a float may be written. What is inferred from the value (`Any`, extra fields, serializers) may be one."""
    serialization = node.get("serialization") or {}
    return (
        node["type"] in ("float", "any")
        or (str(serialization.get("type")).startswith("function") and "return_schema" not in serialization)
        or "allow" in (node.get("extra_behavior"), (node.get("config") or {}).get("extra_fields_behavior"))
    )


# --- JSON schemas: what is written -----------------------------------------------------------------------


def _resolved(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    return schema


def _choices(schema: dict[str, Any], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    schema = _resolved(schema, definitions)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if not branches:
        return [schema]
    return [choice for branch in branches for choice in _choices(branch, definitions)]


def _kinds_of(schema: dict[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    for choice in _choices(schema, definitions):
        if choice.get("format") == "binary":
            yield "binary"
        elif "type" in choice:
            yield choice["type"]
        elif "enum" in choice:
            yield from (_JSON_TYPES.get(type(value), "anything") for value in choice["enum"])
        else:
            yield "anything"


_JSON_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _shape(schema: dict[str, Any]) -> str:
    """The shape of a whole value, such as `JSON { uid, avatar?, access_token (sealed) }`."""
    definitions = schema.get("$defs", {})
    said = [_shape_of(choice, definitions, 1) for choice in _choices(schema, definitions)]
    return " | ".join(dict.fromkeys(f"JSON {shape}" if shape.startswith(("{", "[")) else shape for shape in said))


def _shape_of(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    schema = _resolved(schema, definitions)
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema or "oneOf" in schema:
        return " | ".join(dict.fromkeys(_shape_of(c, definitions, depth) for c in _choices(schema, definitions)))
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items") or {}]
        return f"[{', '.join(_shape_of(item, definitions, depth) for item in items)}]"
    if schema.get("type") == "object":
        return _object_shape(schema, definitions, depth)
    kind = schema.get("type", "JSON")
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _object_shape(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"{{ *: {_shape_of(values, definitions, depth)} }}" if isinstance(values, dict) else "{ * }"
    if depth < 0:
        return "{ … }"
    required = schema.get("required", ())
    said = [
        name + ("" if name in required else "?") + _field_shape(field, definitions, depth)
        for name, field in schema["properties"].items()
    ]
    return f"{{ {', '.join(said)} }}" if said else "{}"


def _field_shape(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    """What is said of a field after its name: that it is sealed, may be null, or what it is made of."""
    choices = _choices(schema, definitions)
    said = ""
    if any(choice.get("format") == "sealed" for choice in choices):
        said = " (sealed)"
    elif depth and any(_is_nested(choice, definitions) for choice in choices):
        kept = [choice for choice in choices if choice.get("type") != "null"]
        said = " " + " | ".join(dict.fromkeys(_shape_of(choice, definitions, depth - 1) for choice in kept))
    return said + (" | null" if any(choice.get("type") == "null" for choice in choices) else "")


def _is_nested(schema: dict[str, Any], definitions: Mapping[str, Any]) -> bool:
    return any("properties" in _resolved(item, definitions) for item in (schema, schema.get("items") or {}))


# --- Sentences -------------------------------------------------------------------------------------------

_OWN_ERRORS = frozenset({SEAL_ERROR, TIME_ERROR, INTEGER_ERROR})
_PYDANTIC_ERRORS = frozenset(get_args(core_schema.ErrorType))
# Errors of Pydantic's own whose sentence quotes the value, or what a validator of the user said about it.
_SAID_OTHERWISE = {
    "assertion_error": "was refused by its own validator",
    "bytes_invalid_encoding": "is not in the declared encoding",
    "get_attribute_error": "could not be read",
    "iteration_error": "could not be read",
    "mapping_type": "is not a mapping",
    "union_tag_invalid": "is of no declared choice",
    "uuid_parsing": "is not a UUID",
    "value_error": "was refused by its own validator",
}


@dataclasses.dataclass(frozen=True)
class _Problem:
    """One thing that is wrong with a value: where, what kind, and a sentence without the value."""

    path: tuple[str | int, ...]
    type: str
    sentence: str


def _problems(error: ValidationError) -> list[_Problem]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_Problem(problem["loc"], problem["type"], _sentence(problem["type"], problem["msg"])) for problem in found]


def _sentence(kind: str, message: str) -> str:
    if kind in _SAID_OTHERWISE:
        return _SAID_OTHERWISE[kind]
    # An error that a user's validator defines says what the user likes, perhaps the value.
    return message if kind in _PYDANTIC_ERRORS or kind in _OWN_ERRORS else "was refused by its own validator"


def _subject(name: str) -> str:
    return f"field {shown(name)}" if name else "the value"


def _bad_value(key: str, name: str, reason: str) -> BadValue:
    return BadValue(f"{shown(key)}: {_subject(name)} {reason}")


def _wrong_type(key: str, name: str, wanted: str, value: object) -> BadValue:
    return _bad_value(key, name, f"must be {wanted}, not {type(value).__name__}")


def _unreadable(key: str, name: str, data: bytes, reason: str) -> Unreadable:
    return Unreadable(f"{_subject(name)} {reason}", key, data)


def _bad_version(what: str, advice: str) -> BadDeclaration:
    return BadDeclaration(f"{what}; {advice}", "bad-version")


# --- Numbers as JavaScript writes them -------------------------------------------------------------------

# Floats that Pydantic may write in another way than JavaScript end in one of these.
_FLOATS_TO_LOOK_AT = re.compile(rb"(?:\.0|[eE][+-]?[0-9]+)[,\]}]")
_TEXT_OR_FLOAT = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)')


def _js_number(number: float) -> str:
    """A finite float as JavaScript writes it: `1` and not `1.0`, `1e+21` and not `1e21`, and no negative zero."""
    if not math.isfinite(number):
        raise ValueError("JSON has no NaN and no infinity")
    text = repr(number or 0.0)
    if "e" not in text:
        return text.removesuffix(".0")
    if 1e-6 <= abs(number) < 1e21:
        return format(Decimal(text), "f")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def _js_numbers(data: bytes) -> bytes:
    """JSON with each float as JavaScript writes it."""
    return _TEXT_OR_FLOAT.sub(_js_token, data) if _FLOATS_TO_LOOK_AT.search(data) else data


def _js_token(found: re.Match[bytes]) -> bytes:
    token = found[0]
    return token if token.startswith(b'"') else _js_number(float(token)).encode()


def _not_finite(tree: Any, path: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """Where in a plain value a float is that JSON cannot say; None if there is no such float."""
    if isinstance(tree, float):
        return None if math.isfinite(tree) else path
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple, set, frozenset)):
        items = enumerate(tree)
    found = (_not_finite(value, (*path, part if isinstance(part, int) else str(part))) for part, value in items)
    return next((place for place in found if place is not None), None)
