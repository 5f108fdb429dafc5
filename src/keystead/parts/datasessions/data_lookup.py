"""Lookups of data sessions: from a token to the prepared read of the record, the owner's list and the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from keystead.parts.datasessions.data_index import DataIndex
from keystead.parts.datasessions.data_record import DataRecord, DataSession
from keystead.parts.datasessions.data_token import DATA_TOKEN_MAX_LENGTH, parse_data_token
from keystead.parts.datasessions.json_texts import decode_texts, stored_texts
from keystead.parts.sessions.session_lookup import SessionQueries
from keystead.schema.repeated_reads import Repeated

# The owner, the session id, and the read of the record, of its place on the owner's list, and of the data.
DataQuery: TypeAlias = tuple[str, str, Repeated]


@dataclass(slots=True)
class KnownRecord:
    """The record that a token led to when it was read last. While the store has the same bytes, only the time must be
    checked. It is remembered with the prepared read; the data is not.

    until_ms   when the session ends or must be touched
    key        of the data
    """

    raw: bytes
    record: DataRecord
    ends_at_ms: int
    until_ms: int
    key: str

    def session(self, token: str, id: str, data: Mapping[bytes, bytes]) -> DataSession:
        """Raises Unreadable."""
        texts = stored_texts(data, self.key)
        decoded = decode_texts(texts, self.key)
        return DataSession(token, id, texts, self.ends_at_ms, self.record, self.raw, _data=decoded)


def data_queries(index_of: Callable[[str], DataIndex]) -> SessionQueries[Repeated]:
    def build(owner: str, id: str) -> Repeated:
        index = index_of(owner)
        return Repeated(*index.reads(owner, id), near=index.policy.near_ms / 1000)

    return SessionQueries(build, parse_data_token, DATA_TOKEN_MAX_LENGTH)


def remember(ask: Repeated, index: DataIndex, session: DataSession) -> None:
    """Remember the record of a session that was found by its current token."""
    if index._family.family.codec.sealed:  # what was sealed does not stay in memory
        return
    record = session.record
    until_ms = min(index.touch_due_ms(record), session.ends_at_ms)
    ask.remembered = KnownRecord(session.raw, record, session.ends_at_ms, until_ms, index._data(session.id).key)
