"""Models and containers, as JSON."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

from keystead.errors import Unreadable
from keystead.schema.codec.blueprint import Blueprint
from keystead.schema.codec.modelled import Modelled
from keystead.schema.codec.numbers import js_numbers, not_finite
from keystead.schema.codec.sentences import bad_value, unreadable, wrong_type
from keystead.schema.seal import NO_SEALING, KeyRing, NoSealing, Sealing

T = TypeVar("T")


class Json(Modelled[T]):
    """A model, or a container of models and plain types, as JSON."""

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        self.field_names = blueprint.field_names
        self.stored_names = blueprint.stored_names
        self._class = blueprint.class_
        self._floats = blueprint.floats
        self._constrained = blueprint.constrained and self._class is not None
        # A model that was built without validation may lack fields.
        is_model = isinstance(self._class, type) and issubclass(self._class, BaseModel)
        self._fewest_fields = len(blueprint.field_names) if is_model else 0

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        data = self._serialize_value(value, NO_SEALING, key, name)
        if self._constrained:
            self._refuse_unreadable(data, key, name)
        return data

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if self._floats and (b"NaN" in data or b"Infinity" in data):
            self._tree(data, key, name)
        return self._read(data, None, key, name, data)

    def _serialize_value(self, value: Any, sealing: Sealing | NoSealing, key: str, name: str) -> bytes:
        """The JSON of a value, as it was given.

        A container is validated. A model already was; only the types of its fields are checked again, since they may
        have been assigned later.
        """
        if self._class is None:
            self._check_container(value, key, name)
        elif not isinstance(value, self._class):
            raise wrong_type(key, name, self._class.__name__, value)
        elif self._fewest_fields and len(value.__dict__) < self._fewest_fields:
            missing = ", ".join(sorted(self.field_names - value.__dict__.keys()))
            raise bad_value(key, name, f"has no {missing}")
        try:
            data = self._serialize(value, context=sealing, warnings="error", by_alias=True, round_trip=True)
        except Exception as error:
            reason = sealing.problem or self._blueprint.why_not(error, value, sealing)
        else:
            return self._check_numbers(data, value, key, name) if self._floats else data
        raise bad_value(key, name, reason)

    def _refuse_unreadable(self, data: bytes, key: str, name: str) -> None:
        """A model may have changed since it was validated: values that violate its constraints are not written."""
        try:
            self._read(data, None, key, name, data)
        except Unreadable as error:
            reason = str(error).partition(": ")[2]
        else:
            return
        raise bad_value(key, name, f"could not be read back: {reason}")

    def _check_container(self, value: Any, key: str, name: str) -> None:
        try:
            self._check(value, strict=True, by_alias=False, by_name=True)
        except Exception as error:
            reason = self._blueprint.why_not(error, value)
        else:
            return
        raise bad_value(key, name, reason)

    def _check_numbers(self, data: bytes, value: Any, key: str, name: str) -> bytes:
        # Pydantic writes NaN as null, so only a null needs a second look.
        if b"null" in data or b"NaN" in data or b"Infinity" in data:
            plain = self._blueprint.adapter.serializer.to_python(value, warnings=False, by_alias=True, round_trip=True)
            if (path := not_finite(plain)) is not None:
                place = f" in {self._blueprint.place_of(path)}" if path else ""
                raise bad_value(key, name, f"contains NaN or an infinite number{place}, which JSON cannot represent")
        return js_numbers(data)

    def _tree(self, data: bytes, key: str, name: str) -> Any:
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError as error:
            reason = f"is not JSON: {error}"
        raise unreadable(key, name, data, reason)

    def _picture(self, data: bytes) -> Any:
        return from_json(data)
