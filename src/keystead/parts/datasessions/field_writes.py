"""The usual write of a session, prepared: a few keys are written, and none is removed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from keystead.parts.sessions.session_lookup import MAX_CACHED
from keystead.schema import Steps
from keystead.schema.family import Bound
from keystead.schema.operation_batch import Done
from keystead.schema.prepared_steps import Prepared
from keystead.schema.slots import has_slots

MOST_FIELDS: Final = 8


class FieldWrites:
    """Steps that are planned once for each number of keys.

    make   the steps, of the keys of the owner's list, the record and the data, of the id, the texts and the deadline
    name   of the procedure that writes the same, for metrics
    """

    def __init__(
        self, index: Bound[Any], records: Bound[Any], data: Bound[Any], make: Callable[..., Steps[None]], name: str
    ) -> None:
        self._families = [index, records, data]
        # A user's next save has the same keys. Not a method: the reference cycle would leave it to the garbage collector.
        self._names = lru_cache(MAX_CACHED)(partial(_names, index, records, data))
        self._make = make
        self._name = name
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
        prepared = self._prepared.get(count) or self._prepare(count, ends_at_ms)
        return prepared(*self._names(owner, id), *words, b"%d" % ends_at_ms)

    def _prepare(self, count: int, ends_at_ms: int) -> Prepared[None]:
        def make(listed: Any, record: Any, data: Any, id: str, *words: Any) -> Steps[None]:
            texts = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
            return self._make(listed, record, data, id, texts, words[-1])

        prepared = Prepared(self._families, make, texts=1 + 2 * count, values=[(ends_at_ms, ends_at_ms)], name=self._name)
        self._prepared[count] = prepared
        return prepared


def _names(index: Bound[Any], records: Bound[Any], data: Bound[Any], owner: str, id: str) -> tuple[bytes, ...]:
    return index.render(owner).encode(), records.render(id).encode(), data.render(id).encode(), id.encode()
