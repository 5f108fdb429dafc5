"""Types of kit settings: durations, lists, signing keys, and limits by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from keystead.errors import BadDeclaration
from keystead.schema.lifetime import duration_ms


def _check_duration(given: str) -> str:
    try:
        duration_ms(given)
    except BadDeclaration as error:
        raise ValueError(str(error)) from None
    return given


def _split(given: Any) -> Any:
    """Parse a list from the environment: comma-separated words, or JSON."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):
        return json.loads(given)  # raises ValueError
    return tuple(part.strip() for part in given.split(",") if part.strip())


def _check_signing_keys(given: SecretStr) -> SecretStr:
    from keystead.parts.jwt import SigningKeys  # only where there are signing keys: it takes megabytes

    try:
        SigningKeys.from_text(given.get_secret_value())
    except BadDeclaration as error:  # its message contains no key
        raise ValueError(str(error)) from None
    return given


Duration: TypeAlias = Annotated[str, AfterValidator(_check_duration)]
Words: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Days: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=0, le=365)], ...], NoDecode, BeforeValidator(_split)]
SigningText: TypeAlias = Annotated[SecretStr, AfterValidator(_check_signing_keys)]
LimitsByName: TypeAlias = dict[str, Annotated[int, Field(ge=0)]]


def check_limit_names(limits: Mapping[str, int]) -> AfterValidator:
    """Refuse unknown limits: `limits: Annotated[LimitsByName, check_limit_names(LIMITS)]`."""

    def check(given: dict[str, int]) -> dict[str, int]:
        unknown = sorted(given.keys() - limits.keys())
        if unknown:
            raise ValueError(f"there is no limit {unknown[0]!r}; there are {', '.join(limits)}")
        return given

    return AfterValidator(check)
