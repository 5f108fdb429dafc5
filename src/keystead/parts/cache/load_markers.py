"""Load markers: why there is no entry. A load is in progress, the last load failed, or there is nothing to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from keystead.errors import BadDeclaration
from keystead.schema import OmittedIfNone, Value
from keystead.schema.lifetime import After, duration_ms, in_words
from keystead.schema.store_fit import has_atomic_steps
from keystead.stores import Guarantees


class LoadMarker(BaseModel):
    """Why there is no entry, as it is stored."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    state: Literal["loading", "failed", "nothing"]
    """`loading`: a load is in progress; `failed`: the last load failed; `nothing`: the provider has no such thing"""
    id: OmittedIfNone[str] = None
    """unique for each load: only that load may write its result, and only while the marker exists"""
    why: OmittedIfNone[str] = None
    """the name of the exception class, if the load failed"""
    retry_ms: OmittedIfNone[int] = None
    """the pause after a failure"""


@dataclass(frozen=True)
class _MarkLifetime(After):
    """The lifetimes of the markers; `ms` is the longest."""

    loading_ms: int
    retry_ms: int
    retry_at_most_ms: int
    nothing_ms: int | None

    @property
    def load_s(self) -> float:
        """The time limit of a load; the rest of `loading` is for recording a failure."""
        return self.loading_ms * 0.9 / 1000

    @property
    def shortest_ms(self) -> int:
        return min(self.loading_ms, self.retry_ms, self.nothing_ms or self.retry_ms)

    def describe(self) -> str:
        to = "" if self.retry_at_most_ms == self.retry_ms else f" to {in_words(self.retry_at_most_ms)}"
        nothing = "" if self.nothing_ms is None else f", {in_words(self.nothing_ms)} if there is nothing"
        return f"{in_words(self.loading_ms)} during a load, {in_words(self.retry_ms)}{to} after a failure{nothing}"


class LoadMarkers(Value[LoadMarker]):
    """The family of the markers of one cache: `LoadMarkers("membership:{id}:mark", nothing="1m", tag="id")`.

    It has the placeholders of the family of the entries, and sets how long each marker lives:

    loading        during a load. It is the longest time until another process may load if this one dies; a load that
                   takes nine tenths of it is stopped, and has failed
    retry          the pause after a failure
    retry_at_most  the longest pause if the provider itself says when to retry (`TryLater`); by default `retry`
    nothing        negative caching: how long "there is nothing" is cached; by default not at all
    """

    def __init__(
        self,
        pattern: str,
        *,
        loading: str | timedelta = "10s",
        retry: str | timedelta = "5s",
        retry_at_most: str | timedelta | None = None,
        nothing: str | timedelta | None = None,
        role: str = "cache",
        tag: str | None = None,
        member_of: str | None = None,
        doc: str = "The load in progress, or why there is no entry.",
        used_by: Sequence[str] = (),
        changed: str = "",
        naming_exempt: str | None = None,
    ) -> None:
        loading_ms, retry_ms = duration_ms(loading, "loading"), duration_ms(retry, "retry")
        retry_at_most_ms = retry_ms if retry_at_most is None else duration_ms(retry_at_most, "retry_at_most")
        if retry_at_most_ms < retry_ms:
            raise BadDeclaration(f"{pattern}: retry_at_most must be at least as long as retry")
        if loading_ms < 10:
            raise BadDeclaration(f"{pattern}: a load needs more time than {in_words(loading_ms)}")
        nothing_ms = None if nothing is None else duration_ms(nothing, "nothing")
        longest_ms = max(loading_ms, retry_at_most_ms, nothing_ms or 0)
        self.marked = _MarkLifetime(longest_ms, loading_ms, retry_ms, retry_at_most_ms, nothing_ms)
        exempt: dict[str, Any] = {} if naming_exempt is None else {"naming_exempt": naming_exempt}
        super().__init__(
            pattern,
            LoadMarker,
            lifetime=self.marked,
            role=role,
            tag=tag,
            member_of=member_of,
            doc=doc,
            used_by=used_by,
            changed=changed,
            **exempt,
        )

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        if not has_atomic_steps(guarantees):
            yield (
                "without an atomic step that every read sees, a load that started before an entry was dropped could "
                "write it again; give the role another store, and write what this one serves into a keyspace of its own"
            )
        shortest_ms = self.marked.shortest_ms
        if shortest_ms < guarantees.shortest_lifetime_ms:
            yield (
                f"it lives {in_words(shortest_ms)} or more, but the shortest lifetime of the store is "
                f"{in_words(guarantees.shortest_lifetime_ms)}"
            )
