"""Sealing: encryption of fields at rest, and the keys for it.

A sealed field is one text in the stored JSON, `sealed.{key id}.{iv}.{ciphertext and tag}`: AES-256-GCM with 12 random
bytes of iv, the parts in base64url without padding. The plaintext is the JSON of the field's value.

The additional authenticated data is `keystead`, the key and the path of the field, separated by zero bytes. The path is
such as `["accounts",0,"access_token"]`, with the name of a hash field in front. So a sealed text that is copied to
another key, another field or another position in the same value does not open. Sealing does not hide the length of a
value, and does not prevent replacing it with an older sealed text of the same field.
"""

from __future__ import annotations

import base64
import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, from_json, to_json

from keystead.errors import BadDeclaration

__all__ = ["KeyRing", "Sealed", "unsealed"]

T = TypeVar("T")
Path = tuple[str | int, ...]

HIDDEN = "(sealed)"  # shown in place of a sealed value
SEALED_MARK = "keystead_sealed"  # in the metadata of the core schema of every sealed field
SEAL_ERROR = "keystead_seal"  # validation error type: not a sealed text, or a copy of one
UNOPENED_ERROR = "keystead_unopened"  # validation error type: a sealed text that does not open

_KEY_BYTES = 32
_IV_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_TEXT = re.compile(r"sealed\.([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{22,})")


class SealError(Exception):
    """A text that does not open. Its message contains neither the text nor any of the plaintext."""


class Unopened(SealError):
    """A sealed text that no key of the ring opens."""


class KeyRing:
    """Encryption keys: new values are sealed with the current key, old ones open with the key they name.

    To rotate, add a new key at the end and keep the old one until nothing is sealed with it any more. One key may
    seal 2^32 values; rotate long before that.
    """

    __slots__ = ("_ciphers", "_keys", "_rejection", "current")

    current: str
    """The id of the key that seals."""

    def __init__(self, keys: Mapping[str, bytes], current: str | None = None) -> None:
        """Keys of 32 bytes by their ids. `current` is the id that seals; without it, the last one does."""
        if not keys:
            raise _bad_key('a key ring needs a key; write KeyRing({"2026a": key}) with a key of 32 bytes')
        for key_id, key in keys.items():
            _check_key(key_id, key)
        if len(set(keys.values())) < len(keys):
            raise _bad_key("two ids of the key ring have the same key; create another one with KeyRing.new_key()")
        if current is not None and current not in keys:
            raise _bad_key(f"the current key {current!r} is not on the ring; write one of {', '.join(keys)}")
        self.current = list(keys)[-1] if current is None else current
        self._keys = dict(keys)
        # Imported late: most programs seal nothing, and it takes as long to import as the whole schema layer.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._rejection = InvalidTag
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}

    @classmethod
    def from_text(cls, text: str) -> KeyRing:
        """Parse the ring of `KEYSTEAD_SEAL_KEYS`: `2026a:{base64url},2026b:{base64url}`; the last one is current."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), 1):
            key_id, colon, encoded = entry.strip().partition(":")
            if not colon:
                raise _bad_key(f"seal key {number} has no id; write {{id}}:{{key}}, as in 2026a:{{key}}")
            if key_id in keys:
                raise _bad_key(f"duplicate key id {key_id!r} on the ring; each key needs its own id")
            keys[key_id] = _key_bytes(key_id, encoded)
        return cls(keys)

    @staticmethod
    def new_key() -> str:
        """A new random key, as the text that `from_text` reads after the id and the colon."""
        return _to_base64url(secrets.token_bytes(_KEY_BYTES))

    def seal(self, plain: bytes, about: bytes) -> str:
        """The sealed text. It opens only with the same additional authenticated data `about`."""
        iv = secrets.token_bytes(_IV_BYTES)
        sealed = self._ciphers[self.current].encrypt(iv, plain, about)
        return f"sealed.{self.current}.{_to_base64url(iv)}.{_to_base64url(sealed)}"

    def open(self, text: str, about: bytes) -> bytes:
        """The plaintext. Raises `SealError` if the format or the key id is wrong, or the text or `about` differs."""
        key_id, iv, ciphertext = _parts(text)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise Unopened(f"is sealed with the key {key_id!r}, which is not on the key ring")
        with contextlib.suppress(self._rejection):
            return cipher.decrypt(iv, ciphertext, about)
        raise Unopened("does not open: it was changed, copied from elsewhere, or sealed with another key")

    def derived(self, purpose: str) -> list[bytes]:
        """A key of 32 bytes for another purpose from each key of the ring, the current one last (HKDF with SHA-256).

        A derived key can neither open sealed values nor derive the keys of other purposes.
        """
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        others = [key_id for key_id in self._keys if key_id != self.current]
        return [
            HKDF(SHA256(), _KEY_BYTES, salt=None, info=f"keystead {purpose}".encode()).derive(self._keys[key_id])
            for key_id in (*others, self.current)
        ]

    @staticmethod
    def sealed_with(text: str) -> str | None:
        """The id of the key that a sealed text names; `None` if it is not a sealed text."""
        found = _TEXT.fullmatch(text)
        return found[1] if found else None

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)}; current: {self.current})"

    def __reduce__(self) -> str:
        raise TypeError("a key ring cannot be copied or pickled")


def _check_key(key_id: object, key: object) -> None:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise _bad_key("the id of a seal key must be 1 to 32 letters, digits, - or _, such as 2026a")
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise _bad_key(f"seal key {key_id!r} must be {_KEY_BYTES} bytes; create one with KeyRing.new_key()")


def _key_bytes(key_id: str, encoded: str) -> bytes:
    with contextlib.suppress(SealError):
        return _from_base64url(encoded.strip().rstrip("="))
    raise _bad_key(f"the seal key after {key_id!r} is not base64url; create one with KeyRing.new_key()")


def _bad_key(sentence: str) -> BadDeclaration:
    return BadDeclaration(sentence, finding="bad-seal-key")


def _to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes:
    """Decode canonical base64url without padding, so that no two texts open to the same value."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        data = b""
    if _to_base64url(data) != text:
        raise SealError("is not a sealed text")
    return data


def _parts(text: str) -> tuple[str, bytes, bytes]:
    found = _TEXT.fullmatch(text)
    if not found:
        raise SealError("is not a sealed text")
    return found[1], base64.urlsafe_b64decode(found[2]), _from_base64url(found[3])


def _additional_data(key: str, path: Path) -> bytes:
    """The additional authenticated data. The path is JSON, which has no zero byte, so it is unique per place."""
    return b"keystead\0" + key.encode("utf-8", "surrogatepass") + b"\0" + to_json(path)


def _texts(tree: Any, wanted: Callable[[str], bool], path: Path) -> Iterator[tuple[Path, str]]:
    """The matching texts of a JSON value, with their paths."""
    if isinstance(tree, str):
        if wanted(tree):
            yield path, tree
    elif isinstance(tree, (dict, list)):
        for part, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if isinstance(value, (str, dict, list)):
                yield from _texts(value, wanted, (*path, part))


def _looks_sealed(text: str) -> bool:
    return text.startswith("sealed.")


class Sealing:
    """Seals one value that is being written.

    A serializer does not know the position of its field in the value. So it writes a unique token instead, and `finish`
    replaces the tokens with sealed texts.
    """

    def __init__(self, ring: KeyRing, key: str, name: str) -> None:
        self.problem: str | None = None
        self._ring = ring
        self._key = key
        self._path: Path = (name,) if name else ()
        self._token = secrets.token_hex(16)
        self._plain: dict[str, bytes] = {}

    def put(self, value: Any) -> str:
        """A token for the field's value, which is already plain JSON."""
        if value == HIDDEN:
            self.problem = f"seals the text {HIDDEN!r}, which is only the placeholder of a hidden value"
            raise ValueError(self.problem)
        token = f"{self._token}.{len(self._plain)}"
        self._plain[token] = to_json(value, inf_nan_mode="constants")
        from_json(self._plain[token], allow_inf_nan=False)
        return token

    def finish(self, data: bytes) -> bytes:
        """The JSON to store, with a sealed text for each token."""
        for path, token in _texts(from_json(data), self._plain.__contains__, self._path):
            sealed = self._ring.seal(self._plain[token], _additional_data(self._key, path))
            data = data.replace(f'"{token}"'.encode(), f'"{sealed}"'.encode())
        return data


class NoSealing:
    """For a value whose type declares no sealed field.

    If there is one anyway (in a model in a field of type Any), it is refused and not lost.
    """

    problem: str | None = None


NO_SEALING = NoSealing()


class SealedValueOpening:
    """Opens one value that is being read. `stored` is its stored JSON, before any upgrade.

    The position of a sealed text is that in the stored value: an upgrade may move it to another field. Without a ring
    nothing is opened, and each sealed value reads as `(sealed)`.
    """

    def __init__(self, ring: KeyRing | None, key: str, name: str, stored: Any) -> None:
        self._ring = ring
        self._key = key
        self._given: dict[str, bytes] = {}
        self._paths: dict[str, Path | None] = {}
        for path, text in _texts(stored, _looks_sealed, (name,) if name else ()):
            # No two sealings have the same text: one of them is a copy, and it is unknown which.
            self._paths[text] = None if text in self._paths else path

    def give(self, value: object) -> str:
        """A token that opens to the value that an upgrade passed to `unsealed`."""
        if not isinstance(value, _Unsealed):
            raise TypeError(f"{type(value).__name__} is not JSON")
        token = f"unsealed.{secrets.token_hex(16)}"
        self._given[token] = to_json(value.value)
        return token

    def hides(self, value: object) -> bool:
        """Whether a value is a sealed text, or a token for a value to be sealed."""
        return isinstance(value, str) and (value in self._given or _TEXT.fullmatch(value) is not None)

    def open(self, text: object) -> bytes:
        """The JSON of the sealed value."""
        if not isinstance(text, str):
            raise SealError("is not a sealed text")
        if text in self._given:
            return self._given[text]
        if text not in self._paths:
            raise SealError("is not a sealed text")
        if self._ring is None:
            if not _TEXT.fullmatch(text):
                raise SealError("is not a sealed text")
            return b""
        path = self._paths[text]
        if path is None:
            raise SealError("is a copy of another sealed field")
        return self._ring.open(text, _additional_data(self._key, path))

    @property
    def shows_only(self) -> bool:
        return self._ring is None


class _Unsealed:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def unsealed(value: Any) -> Any:
    """For upgrades: mark a plain value of an old version as the value of a sealed field.

    It is sealed when the record is next written. `value` is the field's value as JSON.
    """
    return _Unsealed(value)


class _SealedField:
    """The Pydantic annotation of a sealed field."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler(source)
        return core_schema.json_or_python_schema(
            json_schema=core_schema.with_info_wrap_validator_function(_read, core_schema.json_schema(inner)),
            python_schema=inner,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                _write, schema=inner, info_arg=True, return_schema=core_schema.str_schema(), when_used="json"
            ),
            metadata={SEALED_MARK: True},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if handler.mode == "serialization":
            return {"type": "string", "format": "sealed"}
        return handler(cast("core_schema.JsonOrPythonSchema", schema)["python_schema"])

    def __repr__(self) -> str:
        return "Sealed"


def _read(value: Any, validate: core_schema.ValidatorFunctionWrapHandler, info: core_schema.ValidationInfo) -> Any:
    opening = info.context
    if not isinstance(opening, SealedValueOpening):  # JSON that is not from a store: `Model.model_validate_json`
        return validate(to_json(value))
    try:
        opened = opening.open(value)
    except SealError as error:
        reason, kind = str(error), UNOPENED_ERROR if isinstance(error, Unopened) else SEAL_ERROR
    else:
        return HIDDEN if opening.shows_only else validate(opened)
    raise PydanticCustomError(kind, "{reason}", {"reason": reason})


def _write(
    value: Any, serialize: core_schema.SerializerFunctionWrapHandler, info: core_schema.SerializationInfo
) -> Any:
    sealing = info.context
    if isinstance(sealing, NoSealing):
        raise ValueError("there is a sealed field where none is declared")
    return sealing.put(serialize(value)) if isinstance(sealing, Sealing) else HIDDEN


Sealed = Annotated[T, _SealedField()]
"""`access_token: Sealed[str]`, or `Sealed[str] | None`: plain in Python, encrypted in the store.

To a type checker `Sealed[str]` is `str`. Once a model belongs to a family, its `repr` omits sealed fields. Its JSON
(`model_dump_json()`, `model_dump(mode="json")`, the response of a web framework) shows them as `(sealed)`, and
`model_dump()` has the plain values. When Pydantic refuses a value, its error quotes it: set `hide_input_in_errors=True`
in the config of a model with untrusted input.
"""
