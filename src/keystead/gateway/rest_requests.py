"""Requests of the Upstash REST API: the commands in a JSON body, or in a path with its query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

# A command as it came: the name and its arguments. Numbers in JSON stay the text that was sent.
RawCommand: TypeAlias = list[str | bytes]

TOKEN_PARAMETER: Final = "_token"  # noqa: S105 - a name
MOST_COMMANDS: Final = 10_000  # in one request


class RestError(Exception):
    """A request that is refused as a whole: a status and the text of the field `error`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def read_command(body: bytes) -> RawCommand:
    """`POST /`: one command. Raises RestError."""
    return _check_command(_load(body))


def read_commands(body: bytes) -> list[RawCommand]:
    """`POST /pipeline` and `/multi-exec`: a list of commands. Raises RestError: then no command has run."""
    rows = _load(body)
    if type(rows) is not list or not rows:
        raise RestError(400, 'ERR the body must be a JSON array of commands, such as [["SET", "key", "value"]]')
    if len(rows) > MOST_COMMANDS:
        raise RestError(400, f"ERR a request has at most {MOST_COMMANDS} commands")
    return [_check_command(row) for row in rows]


def read_path(segments: Sequence[bytes], query: bytes, body: bytes) -> RawCommand:
    """`/set/key/value?EX=100`: the path, the body as one more argument, and the query as further ones."""
    command: RawCommand = [unquote_to_bytes(segment) for segment in segments]
    if body:
        command.append(body)
    for name, value in _pairs(query):
        if name != TOKEN_PARAMETER:
            command += [name, value] if value else [name]
    command[0] = bytes(command[0]).decode("utf-8", "replace")  # type: ignore[arg-type]  # the path is bytes
    return command


def token_in(query: bytes) -> str | None:
    """The token in the query, if there is one."""
    return next((value for name, value in _pairs(query) if name == TOKEN_PARAMETER), None)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    except ValueError:
        raise RestError(400, "ERR the query has too many parameters") from None


def _load(body: bytes) -> Any:
    try:
        # Numbers stay text: 1.50 and 12345678901234567890 are stored as they were written.
        return json.loads(body, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except RecursionError:
        raise RestError(
            400, "ERR the body is nested too deeply; it must be a JSON array of strings and numbers"
        ) from None
    except ValueError:
        raise RestError(400, "ERR the body is not valid JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check_command(row: Any) -> RawCommand:
    if type(row) is not list or not row:
        raise RestError(400, 'ERR a command must be a JSON array such as ["GET", "key"]')
    for at, given in enumerate(row):
        if type(given) is not str:
            row[at] = _scalar(given)
    return row


def _scalar(given: Any) -> str:
    if type(given) is bool:
        return "true" if given else "false"
    kind = {type(None): "null", list: "an array", dict: "an object"}[type(given)]
    raise RestError(400, f"ERR an argument must be a string or a number, not {kind}; send it as JSON text")
