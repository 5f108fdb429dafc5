"""JSON with sealed fields, with versions, or with both."""

from __future__ import annotations

import copy
import json
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from keystead.errors import Unreadable, printable
from keystead.schema.codec.blueprint import Blueprint
from keystead.schema.codec.json_schemas import resolve_reference
from keystead.schema.codec.json_values import Json
from keystead.schema.codec.sentences import NO_RING, bad_value, problems_of, unreadable
from keystead.schema.codec.versions import VersionRefused, Versions, upgrade, version_in
from keystead.schema.seal import HIDDEN, NO_SEALING, KeyRing, SealedValueOpening, Sealing

T = TypeVar("T")


class RecordCodec(Json[T]):
    """JSON with sealed fields, with versions, or with both. It is parsed twice: once to locate versions and seals."""

    def __init__(self, blueprint: Blueprint, versions: Versions | None) -> None:
        super().__init__(blueprint)
        self.versions = versions
        self._version_name: str | None = None
        self._stamp = b""
        if versions is not None:
            self._version_name = blueprint.version_name(versions)
            self._stamp = to_json(versions.field) + b":%d}" % versions.current

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        stamped = self._stamp_version(value) if self._version_name else value
        if not self.sealed:
            data = self._serialize_value(stamped, NO_SEALING, key, name)
        elif ring is None:
            raise bad_value(key, name, NO_RING)
        else:
            sealing = Sealing(ring, key, name)
            data = sealing.finish(self._serialize_value(stamped, sealing, key, name))
        if self._stamp and not self._version_name:
            return data[:-1] + (b"," if data != b"{}" else b"") + self._stamp
        return data

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if self.sealed and ring is None:
            raise unreadable(key, name, data, NO_RING)
        opening, json_text = self._prepare(data, key, ring, name)
        return self._read(json_text, opening, key, name, data)

    def shown(self, data: bytes, key: str) -> Any:
        try:
            opening, json_text = self._prepare(data, key, None, "")
            reason = self._reason_without_ring(json_text, opening)
        except Unreadable as error:
            return {"unreadable": str(error).removeprefix(f"{printable(key)}: ")}
        if reason is not None:
            return {"unreadable": f"the value {reason}"}
        return _hide_sealed(from_json(json_text), opening)

    def json_schema(self) -> dict[str, Any]:
        schema = super().json_schema()
        if self.versions is not None and not self._version_name:
            written = resolve_reference(schema, schema.get("$defs", {}))
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
        return version_in(tree, self.versions) if isinstance(tree, dict) else None

    def _stamp_version(self, value: Any) -> Any:
        """A copy with the current version, unless the value has it already."""
        versions, name = self.versions, self._version_name
        if versions is None or name is None:
            return value
        if isinstance(value, dict):
            return value | {name: versions.current}
        if self._class is None or not isinstance(value, self._class) or getattr(value, name, None) == versions.current:
            return value
        stamped = copy.copy(value)
        # Bypasses validation and freezing: the copy only goes to the store.
        object.__setattr__(stamped, name, versions.current)
        return stamped

    def _prepare(
        self, data: bytes, key: str, ring: KeyRing | None, name: str
    ) -> tuple[SealedValueOpening | None, bytes]:
        """What is needed to open the sealed fields, and the JSON of the current version."""
        tree = self._tree(data, key, name)
        opening = SealedValueOpening(ring, key, name, tree) if self.sealed else None
        if self.versions is None:
            return opening, data
        try:
            return opening, self._upgrade(tree, data, opening, self.versions)
        except VersionRefused as error:
            reason = str(error)
        raise unreadable(key, name, data, reason)

    def _upgrade(self, tree: Any, data: bytes, opening: SealedValueOpening | None, versions: Versions) -> bytes:
        if not isinstance(tree, dict):
            raise VersionRefused("is not a JSON object")
        version = version_in(tree, versions)
        if version is None or version < versions.oldest:
            raise VersionRefused(f"has no known version: {versions.field} is not {versions.oldest} or more")
        if version > versions.current:
            raise VersionRefused(
                f"is of version {version}, which a newer program wrote; this one reads up to version {versions.current}"
            )
        if version == versions.current and self._version_name:
            return data
        if version == versions.current and data.endswith(b"," + self._stamp):
            return data[: -len(self._stamp) - 1] + b"}"  # as `encode` wrote it; nothing else ends like this
        for step in range(version, versions.current):
            tree = upgrade(tree, step, versions)
        if self._version_name:
            tree[versions.field] = versions.current
        else:
            tree.pop(versions.field, None)
        return _as_json(tree, opening)

    def _reason_without_ring(self, json_text: bytes, opening: SealedValueOpening | None) -> str | None:
        """Why the value cannot be read, as far as that shows without opening sealed fields."""
        try:
            self._validate(json_text, strict=True, by_alias=True, context=opening)
        except ValidationError as error:
            # Checks around a sealed field (a pattern, a validator) have seen `(sealed)`, not its value.
            problems = [
                problem
                for problem, given in zip(problems_of(error), error.errors(), strict=True)
                if not (opening and opening.hides(given["input"]))
            ]
            return self._blueprint.reason(problems) if problems else None
        except Exception as error:
            return f"was refused by its own validator ({type(error).__name__})"
        return None


def _as_json(tree: dict[str, Any], opening: SealedValueOpening | None) -> bytes:
    try:
        return json.dumps(tree, ensure_ascii=False, allow_nan=False, default=opening.give if opening else None).encode()
    except (TypeError, ValueError):
        pass
    raise VersionRefused("was upgraded to something that is not JSON")


def _hide_sealed(tree: Any, opening: SealedValueOpening | None) -> Any:
    if isinstance(tree, dict):
        return {name: _hide_sealed(value, opening) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_hide_sealed(value, opening) for value in tree]
    return HIDDEN if opening and opening.hides(tree) else tree
