"""What callers give to data sessions: data, users and timeouts, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from keystead.errors import BadValue
from keystead.parts.datasessions.data_token import owner_of
from keystead.parts.datasessions.field_writes import TOO_MANY
from keystead.parts.datasessions.json_texts import encode_texts
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment


@dataclass(frozen=True)
class DataRoom:
    """How much data a session can have."""

    fields_max: int
    value_max_bytes: int

    def encode(self, data: Mapping[str, Any]) -> dict[str, str]:
        if len(data) > self.fields_max:
            raise BadValue(f"a session has at most {self.fields_max} keys, not {len(data)}")
        return encode_texts(data, self.value_max_bytes)

    def check(self, stopped: str | None) -> None:
        """Raises BadValue if a write was stopped because there are too many keys."""
        if stopped == TOO_MANY:
            raise BadValue(f"a session has at most {self.fields_max} keys; remove some first")


def times_of(idle: str | timedelta | None, ends_at: datetime | int | None) -> dict[str, Any]:
    times: dict[str, Any] = {}
    if idle is not None:
        times["idle_ms"] = duration_ms(idle, "idle")
    if ends_at is not None:
        times["ends_at"] = moment(deadline_ms(ends_at))
    return times


def checked_owner(user: str) -> str:
    if type(user) is not str or not user:  # a number from a database is a mistake that type checkers may not see
        raise BadValue(f"the id of a user must be text that is not empty, not {type(user).__name__}")
    return owner_of(user)
