"""Fields that are left out while they are None."""

from __future__ import annotations

import types
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import Field

T = TypeVar("T")


def is_none(value: object) -> bool:
    """`StoredSchema` recognises a field that is never null by this function."""
    return value is None


OmittedIfNone = Annotated[T | None, Field(exclude_if=is_none)]
"""`short_token: OmittedIfNone[str] = None`: while the field is None, it is left out of the JSON, not written null."""


def without_none(type_: Any) -> Any:
    """`str` of `str | None`, for a field that is omitted while it is None. Annotations and other types are kept."""
    origin = get_origin(type_)
    if origin is Annotated:
        inner, *metadata = get_args(type_)
        return Annotated[(without_none(inner), *metadata)]
    if origin in (Union, types.UnionType):
        kept = tuple(choice for choice in get_args(type_) if choice is not types.NoneType)
        return Union[kept]  # noqa: UP007 (how many there are is not known here)
    return type_
