"""The usual write of a session, prepared: a few keys are written, and none is removed."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from keystead.parts.sessions.session_lookup import MAX_CACHED
from keystead.schema import Steps
from keystead.schema.family import Bound
from keystead.schema.operation_batch import Done
from keystead.schema.prepared_steps import Prepared
from keystead.schema.slots import has_slots

ENDED: Final = "ended"
TOO_MANY: Final = "too many keys"
MOST_FIELDS: Final = 8


class FieldWrites:
    """As `DataIndex.write`, by steps that are planned once for each number of keys.

    They stop with TOO_MANY if there is no room for the keys should all be new. So no step after the first write can
    stop the others, and a store keeps nothing for undoing, which takes Redis longer than the write.
    """

    def __init__(self, index: Bound[Any], records: Bound[Any], data: Bound[Any], fields_max: int) -> None:
        self._families = [index, records, data]
        # Not a method: its reference cycle would be left to the garbage collector.
        self._names = lru_cache(MAX_CACHED)(partial(_names, index, records, data))
        self._fields_max = fields_max
        self._prepared: dict[int, Prepared[None]] = {}  # by the number of keys

    def start(
        self, owner: str, id: str, texts: Mapping[str, str], ends_at_ms: int
    ) -> Coroutine[Any, Any, Done[None]] | None:
        """Write these keys. None: there are too many, or they are in several slots, or one cannot be stored."""
        count = len(texts)
        if not 0 < count <= MOST_FIELDS or has_slots(self._families[0].store):
            return None
        try:
            words = [word.encode() for field in texts.items() for word in field]
        except UnicodeEncodeError:
            return None
        prepared = self._prepared.get(count)
        if prepared is None:
            prepared = self._prepared[count] = self._prepare(count, ends_at_ms)
        return prepared(*self._names(owner, id), *words, b"%d" % ends_at_ms)

    def _prepare(self, count: int, ends_at_ms: int) -> Prepared[None]:
        room = self._fields_max - count

        def make(listed: Any, record: Any, data: Any, id: str, *words: Any) -> Steps[None]:
            return Steps(
                listed.has(id).otherwise(ENDED),
                record.exists().otherwise(ENDED),
                data.at_most(room).otherwise(TOO_MANY),
                data.put(dict(zip(words[:-1:2], words[1:-1:2], strict=True)), ends_at=words[-1]),
            )

        values = [(ends_at_ms, ends_at_ms)]
        return Prepared(self._families, make, texts=1 + 2 * count, values=values, name="DataIndex.write")


def _names(index: Bound[Any], records: Bound[Any], data: Bound[Any], owner: str, id: str) -> tuple[bytes, ...]:
    return index.render(owner).encode(), records.render(id).encode(), data.render(id).encode(), id.encode()
