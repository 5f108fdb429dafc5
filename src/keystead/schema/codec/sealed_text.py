"""Values that are sealed as a whole."""

from __future__ import annotations

from typing import Any, TypeVar

from keystead.schema.codec.modelled import Modelled
from keystead.schema.codec.scalars import text_as_json
from keystead.schema.codec.sentences import NO_RING, NOT_TEXT, bad_value, unreadable
from keystead.schema.seal import HIDDEN, KeyRing, SealedValueOpening, Sealing

T = TypeVar("T")


class SealedText(Modelled[T]):
    """A value that is sealed as a whole: the sealed text itself is stored."""

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if ring is None:
            raise bad_value(key, name, NO_RING)
        sealing = Sealing(ring, key, name)
        try:
            self._check(value, strict=True)
            return sealing.finish(self._serialize(value, context=sealing, warnings="error"))[1:-1]
        except Exception as error:
            reason = sealing.problem or self._blueprint.why_not(error, value)
        raise bad_value(key, name, reason)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        if ring is None:
            raise unreadable(key, name, data, NO_RING)
        json_text = text_as_json(data)
        if json_text is None:
            raise unreadable(key, name, data, NOT_TEXT)
        return self._read(json_text, SealedValueOpening(ring, key, name, data.decode()), key, name, data)

    def shown(self, data: bytes, key: str) -> Any:
        if KeyRing.sealed_with(data.decode("utf-8", "replace")) is None:
            return {"unreadable": "the value is not a sealed text"}
        return HIDDEN
