"""Codec: how the values of one type are stored."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from keystead.errors import Unreadable, printable
from keystead.schema.codec.versions import Versions
from keystead.schema.seal import KeyRing

T = TypeVar("T")


class Codec(ABC, Generic[T]):
    """How the values of one type are stored. Created by `codec_for`."""

    type: Any
    """The declared type."""
    sealed: bool = False
    """Whether any field, at any depth, is sealed. Then `encode` and `decode` need a ring."""
    versions: Versions | None = None
    field_names: frozenset[str] = frozenset()
    """The Python names of the fields of a model; empty for other types."""
    stored_names: Mapping[str, str] = MappingProxyType({})
    """The stored name of each of them."""

    @abstractmethod
    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        """Encode a value to be stored under `key`, in its field `name` if the key is a hash. Raises `BadValue`."""

    @abstractmethod
    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        """Decode a stored value. Raises `Unreadable`."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of stored values."""

    @abstractmethod
    def describe(self) -> str:
        """The shape of the value in a few words, for the key document."""

    def shown(self, data: bytes, key: str) -> Any:
        """The stored value as JSON that an operator may see: sealed fields show as `(sealed)` and are not opened.

        If it cannot be read it is `{"unreadable": reason}`; nothing is raised.
        """
        try:
            self.decode(data, key)
        except Unreadable as error:
            return {"unreadable": str(error).removeprefix(f"{printable(key)}: ")}
        return self._picture(data)

    def version_of(self, data: bytes) -> int | None:
        """The schema version of a stored object; `None` if the family has no versions or this is not an object."""
        return None

    def _picture(self, data: bytes) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
