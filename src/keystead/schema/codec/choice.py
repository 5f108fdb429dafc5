"""Choose the codec of a type."""

from __future__ import annotations

from typing import Any, NewType, TypeVar, overload

from keystead.schema.codec.blueprint import Blueprint
from keystead.schema.codec.codec import Codec
from keystead.schema.codec.json_schemas import CONTAINERS
from keystead.schema.codec.json_values import Json
from keystead.schema.codec.plain import PLAIN
from keystead.schema.codec.scalars import FORMS, Scalar
from keystead.schema.codec.sealed_records import RecordCodec
from keystead.schema.codec.sealed_text import SealedText
from keystead.schema.codec.versions import Versions

T = TypeVar("T")


@overload
def codec_for(type_: type[T], *, versions: Versions | None = None, where: str = "") -> Codec[T]: ...
@overload
def codec_for(type_: Any, *, versions: Versions | None = None, where: str = "") -> Codec[Any]: ...
def codec_for(type_: Any, *, versions: Versions | None = None, where: str = "") -> Codec[Any]:
    """The codec of a type. `where` names the family in error messages.

    Raises `BadDeclaration` for a type that cannot be stored and read back, and for versions that do not fit it.
    The models of sealed fields leave those out of their `repr` from now on.
    """
    while isinstance(type_, NewType):
        type_ = type_.__supertype__
    place = f"{where}: " if where else ""
    for plain, codec in PLAIN:
        if type_ is plain and versions is None:
            return codec()
    blueprint = Blueprint(type_, place)
    if versions is not None:
        return RecordCodec(blueprint, versions)
    if blueprint.kinds <= CONTAINERS:
        return RecordCodec(blueprint, None) if blueprint.sealed else Json(blueprint)
    if blueprint.sealed:
        return SealedText(blueprint)
    [kind] = blueprint.kinds
    return Scalar(blueprint, FORMS[kind])
