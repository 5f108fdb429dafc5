"""Structured logs, as text or JSON: an access log with a line per request, and errors.

No access log line contains a query string, a cookie, a body, a key, an id or the path of an unknown route. Events of
`keystead.security` may name the user, but contain no credential. Tracebacks contain lines of code and error names;
error messages, which may quote user input, only in development.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

ACCESS: Final = logging.getLogger("keystead.access")
SERVER: Final = logging.getLogger("keystead.server")
_FIELDS: Final = "keystead_fields"
# The fields of `keystead.security` events.
_EVENT_FIELDS: Final = ("event", "provider", "client", "count", "reason", "user", "chain")
_MOST_ERRORS: Final = 20


def set_up_logs(form: Literal["text", "json"], level: str, development: bool) -> None:
    """Send all Keystead logs to standard error, in this format. A second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((_Json if form == "json" else _Text)(messages=development))
    root = logging.getLogger("keystead")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def log_request(level: int, **fields: Any) -> None:
    ACCESS.log(level, "request", extra={_FIELDS: fields})


def log_failure(error: BaseException, **fields: Any) -> None:
    """Log an unexpected error of a route, with its traceback."""
    SERVER.error("a request failed", exc_info=error, extra={_FIELDS: fields})


def log_overload(refused: int, at_once: int) -> None:
    """Requests that were refused since the last such line."""
    SERVER.warning("overloaded: requests are refused", extra={_FIELDS: {"refused": refused, "at_once": at_once}})


def log_slow_call(family: str, procedure: str, outcome: str, seconds: float) -> None:
    fields = {"family": family, "procedure": procedure, "outcome": outcome, "ms": round(seconds * 1000)}
    SERVER.warning("a store call was slow", extra={_FIELDS: {name: one for name, one in fields.items() if one}})


class _Structured(logging.Formatter):
    def __init__(self, messages: bool) -> None:
        super().__init__()
        self._messages = messages

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        fields |= {name: vars(record)[name] for name in _EVENT_FIELDS if name in vars(record)}
        fields |= getattr(record, _FIELDS, {})
        return fields

    def trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[1] is None:
            return ""
        return "\n".join(
            f"{link}{''.join(traceback.format_list(traceback.extract_tb(error.__traceback__)))}{self._describe(error)}"
            for link, error in _error_chain(record.exc_info[1])
        )

    def _describe(self, error: BaseException) -> str:
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        return f"{name}: {error}" if self._messages and str(error) else name


def _error_chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The error, its causes and the members of groups, each once, with a heading; at most `_MOST_ERRORS`.

    Causes can be cyclic: `raise e from e` is enough.
    """
    seen: set[int] = set()
    waiting = [("", error)]
    while waiting and len(seen) < _MOST_ERRORS:
        link, one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield link, one
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None:
            waiting.append(("caused by\n", cause))
        if isinstance(one, BaseExceptionGroup):
            waiting += [("which contains\n", member) for member in one.exceptions]


class _Json(_Structured):
    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        trace = self.trace(record)
        return json.dumps({**fields, **({"trace": trace} if trace else {})}, ensure_ascii=False, default=str)


class _Text(_Structured):
    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        at, level, _, message = (fields.pop(name) for name in ("time", "level", "logger", "message"))
        line = " ".join(
            (at, level, message.replace("\n", " "), *(f"{name}={_word(value)}" for name, value in fields.items()))
        )
        trace = self.trace(record)
        return f"{line}\n{trace}" if trace else line


def _word(value: object) -> str:
    """A value as one word of a line, quoted if it has spaces, so that it cannot look like another field."""
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
