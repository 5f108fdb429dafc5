"""What a request changed in a session, for frameworks that hand over the whole data of a session at its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from keystead.parts.datasessions import DataSession

_MS = timedelta(milliseconds=1)


def merge_changes(found: DataSession, data: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """For `sign_in`: the changes of this request on top of what other requests saved meanwhile."""
    before = {name: json.loads(text) for name, text in found.texts.items()}  # the caller may have changed `data`

    def merge(newest: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in newest.items() if name in data or name not in before}
        return kept | {name: value for name, value in data.items() if name not in before or before[name] != value}

    return merge


def has_times(session: DataSession, times: Mapping[str, Any]) -> bool:
    """Whether the session has these timeouts: `idle`, a timedelta, or `ends_at`, a datetime."""
    record = session.record
    if "ends_at" in times:
        return record.ends_at is not None and _ms(record.ends_at) == _ms(times["ends_at"])
    return record.ends_at is None and record.idle_ms == times["idle"] // _MS


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
