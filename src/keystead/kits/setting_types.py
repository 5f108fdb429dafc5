"""What settings of kits are made of: durations, lists, keys that sign, and limits by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from keystead.errors import BadDeclaration
from keystead.parts.jwt import SigningKeys
from keystead.schema.lifetime import duration_ms


def _duration(given: str) -> str:
    try:
        duration_ms(given)
    except BadDeclaration as error:
        raise ValueError(str(error)) from None
    return given


def _split(given: Any) -> Any:
    """In the environment a list is one text: its words divided by commas, or JSON."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):
        return json.loads(given)  # what is no JSON is a ValueError
    return tuple(part.strip() for part in given.split(",") if part.strip())


def _signing(given: SecretStr) -> SecretStr:
    try:
        SigningKeys.from_text(given.get_secret_value())
    except BadDeclaration as error:  # whose sentence holds no key
        raise ValueError(str(error)) from None
    return given


Duration: TypeAlias = Annotated[str, AfterValidator(_duration)]
Words: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Days: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=0, le=365)], ...], NoDecode, BeforeValidator(_split)]
SigningText: TypeAlias = Annotated[SecretStr, AfterValidator(_signing)]
LimitsByName: TypeAlias = dict[str, Annotated[int, Field(ge=0)]]


def known(limits: Mapping[str, int]) -> AfterValidator:
    """That each limit which is set is one of these: `limits: Annotated[LimitsByName, known(LIMITS)]`."""
    return AfterValidator(_checker(limits))


def _checker(limits: Mapping[str, int]) -> Callable[[dict[str, int]], dict[str, int]]:
    def check(given: dict[str, int]) -> dict[str, int]:
        unknown = sorted(given.keys() - limits.keys())
        if unknown:
            raise ValueError(f"there is no limit {unknown[0]!r}; there are {', '.join(limits)}")
        return given

    return check
