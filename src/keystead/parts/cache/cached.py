"""`Cached`: the entries of a cache and all that a cache needs beside them, in one declaration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from keystead.parts.cache.load_markers import LoadMarkers
from keystead.parts.companions import beside, tag_of
from keystead.schema import Lifetime, Value, after
from keystead.schema.codec import Versions
from keystead.schema.store_fit import misfits_beside
from keystead.stores import Guarantees

T = TypeVar("T")

_MARK_DOC: Final = "The load of an entry that is in progress, or why there is no entry."
_STALE_DOC: Final = "The last value of an entry, for when it has expired."


class Cached(Value[T]):
    """Values that are loaded when they are missing, for `@cache` and `Cache`:

        report = Cached("report:{id:int}", Report, lifetime=after("5m"), stale="1d")

    Its keyspace also gets `report_mark`, the markers of single flight, and with `stale` the copies `report_stale`.

    lifetime   how long an entry is fresh: after, or sliding without `stale`
    stale      how old, counted from its load, the last value may be when the entry has expired: it is served at once
               while it is loaded anew, and while loading fails. By default it is not kept
    loading, retry, retry_at_most, nothing   as in LoadMarkers
    tag        the hash tag in a cluster; by default the first placeholder
    """

    def __init__(
        self,
        pattern: str,
        type_: type[T],
        *,
        lifetime: Lifetime,
        stale: str | timedelta | None = None,
        loading: str | timedelta = "1m",
        retry: str | timedelta = "5s",
        retry_at_most: str | timedelta | None = None,
        nothing: str | timedelta | None = None,
        role: str = "cache",
        tag: str | None = None,
        member_of: str | None = None,
        doc: str = "",
        used_by: Sequence[str] = (),
        changed: str = "",
        naming_exempt: str | None = None,
        versions: Versions | None = None,
    ) -> None:
        tag = tag or tag_of(pattern)
        shared: dict[str, Any] = {"role": role, "tag": tag, "member_of": member_of, "used_by": used_by}
        if naming_exempt is not None:
            shared["naming_exempt"] = naming_exempt
        super().__init__(pattern, type_, versions=versions, lifetime=lifetime, doc=doc, changed=changed, **shared)
        times: Any = {"loading": loading, "retry": retry, "retry_at_most": retry_at_most, "nothing": nothing}
        self.companions["mark"] = LoadMarkers(beside(pattern, "mark"), **times, **shared, doc=_MARK_DOC)
        if stale is not None:
            self.companions["stale"] = Value(
                beside(pattern, "stale"), type_, versions=versions, lifetime=after(stale), doc=_STALE_DOC, **shared
            )

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        yield from misfits_beside(self.pattern, guarantees, one_key_fits=True)  # there the markers are inside
