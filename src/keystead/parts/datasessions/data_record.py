"""The stored record of a data session, and the session as it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

from keystead.parts.datasessions.data_token import user_of
from keystead.parts.datasessions.json_texts import decode_texts
from keystead.parts.digest import digest, same
from keystead.parts.sessions import SessionRecord
from keystead.schema import EpochMs
from keystead.schema.times import deadline_ms

JsonData: TypeAlias = dict[str, Any]  # values of JSON: None, bool, int, float, str, list, dict


class DataRecord(SessionRecord):
    """Who a session belongs to, its token and its times. Its data is in a hash beside it. It cannot be changed: those
    who read it share it.

    `uid` is the id of the user; for an anonymous session `@` and a digest of the client's address.
    """

    model_config = ConfigDict(frozen=True)

    token: str
    """the digest of the token"""
    previous: str = ""
    """the digest of the token before it"""
    previous_until: EpochMs | None = None
    """when that one stops working"""
    idle_ms: int | None = None
    """its own idle timeout, if that is shorter than the one of the policy"""
    ends_at: EpochMs | None = None
    """when it ends in any case, if that is earlier than the policy says"""

    def state_of(self, token: str, now_ms: int) -> Literal["current", "previous"] | None:
        """Whether this is its token, or that before it, which still works for a moment. None: neither."""
        given = digest(token)
        if same(self.token, given):
            return "current"
        in_grace = self.previous_until is not None and now_ms < deadline_ms(self.previous_until)
        return "previous" if in_grace and same(self.previous, given) else None


@dataclass(slots=True)
class DataSession:
    """A live session, as it was read. It is truthy; `Gone` is falsy.

    token        the secret for the cookie; not stored anywhere
    id           its id, which is not a secret, and which rotation does not change
    data         a dict of JSON values, yours to change; `save` writes what differs from what was read
    ends_at_ms   when it ends if it is not used again
    aged         the token was rotated a moment ago, and is accepted only until the grace period ends
    record       who it belongs to, and its times
    """

    token: str = field(repr=False)
    id: str
    texts: dict[str, str] = field(repr=False)  # the data as it is stored
    ends_at_ms: int
    record: DataRecord = field(repr=False)
    raw: bytes = field(repr=False)  # the record as it is stored
    aged: bool = False
    evicted: tuple[str, ...] = ()  # the ids of the sessions that were evicted for it
    _data: JsonData | None = field(default=None, repr=False)

    @property
    def data(self) -> JsonData:
        data = self._data
        if data is None:  # a session that was saved is seldom looked at again
            data = self._data = decode_texts(self.texts, self.id)
        return data

    @data.setter
    def data(self, data: JsonData) -> None:
        self._data = data

    @property
    def stored(self) -> JsonData:
        """The data as it was read or written last: a copy, which no change of `data` reaches."""
        return decode_texts(self.texts, self.id)

    @property
    def owner(self) -> str:
        return self.record.uid

    @property
    def user(self) -> str | None:
        """The id of the user. None: the session is anonymous."""
        return user_of(self.record.uid)

    @property
    def created_at_ms(self) -> int:
        """When the session began; for a signed-in one, when the user signed in."""
        return deadline_ms(self.record.created_at)

    def __bool__(self) -> Literal[True]:
        return True
