"""The base of all codecs that use Pydantic."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from pydantic import ValidationError

from keystead.schema.codec.blueprint import Blueprint
from keystead.schema.codec.codec import Codec
from keystead.schema.codec.sentences import problems_of, unreadable
from keystead.schema.codec.shapes import shape_of_value
from keystead.schema.seal import UNOPENED_ERROR, SealedValueOpening

T = TypeVar("T")


class Modelled(Codec[T]):
    """The base of all codecs that use Pydantic."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.type = blueprint.type
        self.sealed = blueprint.sealed
        self._blueprint = blueprint
        self._check = blueprint.adapter.validator.validate_python
        self._validate = blueprint.adapter.validator.validate_json
        self._serialize = blueprint.adapter.serializer.to_json

    def json_schema(self) -> dict[str, Any]:
        return copy.deepcopy(self._blueprint.schema)

    def describe(self) -> str:
        return shape_of_value(self.json_schema())

    def _read(self, json_text: bytes, opening: SealedValueOpening | None, key: str, name: str, stored: bytes) -> T:
        unopened = False
        try:
            value: T = self._validate(json_text, strict=True, by_alias=True, context=opening)
        except ValidationError as error:
            problems = problems_of(error)
            reason = self._blueprint.reason(problems)
            unopened = any(problem.type == UNOPENED_ERROR for problem in problems)
        except Exception as error:  # a validator of the model may raise anything
            reason = f"was refused by its own validator ({type(error).__name__})"
        else:
            return value
        raise unreadable(key, name, stored, reason, unopened=unopened)
