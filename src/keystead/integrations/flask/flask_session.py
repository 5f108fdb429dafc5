"""`flask.session` as a data session: read by its first use, and written key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from flask.json.tag import TaggedJSONSerializer
from flask.sessions import SessionMixin

from keystead.parts.datasessions import DataSession, Gone

_JSON: Final = TaggedJSONSerializer()  # as Flask's own sessions: tuples, bytes, Markup, UUID and datetime are tagged
PERMANENT: Final = "_permanent"


class FlaskSession(SessionMixin):
    """The session of a request, a dict. Its first use reads it from the store; a request that does not use it costs
    nothing.

    Values are JSON, and what Flask's own sessions can hold besides: tuples, bytes, Markup, UUID, datetime. Changes
    inside a value, such as `session["cart"].append(…)`, are found without `session.modified = True`.
    """

    accessed = False
    modified = False

    def __init__(self, token: str, load: Callable[[str], DataSession | Gone], *, is_permanent: bool = False) -> None:
        self.given = token  # of the browser
        self._load = load
        self._begins_permanent = is_permanent
        self._data: dict[str, Any] | None = None
        self.found: DataSession | None = None  # as it was read
        self.is_regenerated = False

    @property
    def is_loaded(self) -> bool:
        return self._data is not None

    @property
    def sid(self) -> str:
        """The token in the cookie of a stored session, a secret. Empty: nothing is stored yet."""
        self._read()
        return "" if self.found is None else self.found.token

    @property
    def new(self) -> bool:  # type: ignore[override]  # a class attribute in Flask
        """Whether nothing is stored yet."""
        self._read()
        return self.found is None

    def _read(self) -> dict[str, Any]:
        self.accessed = True
        if self._data is None:
            found = self._load(self.given) if self.given else None
            self.found = found or None
            # Read from the stored texts: the values here are for the caller to change.
            texts = {} if self.found is None else self.found.texts
            self._data = {name: _JSON.loads(text) for name, text in texts.items()}
            if self.found is None and self._begins_permanent:
                self._data[PERMANENT] = True
        return self._data

    def tagged(self) -> dict[str, Any]:
        """The data as JSON values. Empty: there is nothing to store."""
        data = self._read()
        if all(name == PERMANENT for name in data):
            return {}
        return {name: _JSON.tag(value) for name, value in data.items()}

    # --- a dict ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._read()[name] = value
        self.modified = True

    def __delitem__(self, name: str) -> None:
        del self._read()[name]
        self.modified = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As of a dict. It counts as a change, because the caller may change the value that it returns."""
        self.modified = True
        return self._read().setdefault(name, default)

    def clear(self) -> None:
        self._read().clear()
        self.modified = True

    def __repr__(self) -> str:
        # The values may be secrets.
        return f"<FlaskSession {'not read' if self._data is None else sorted(self._data)}>"
