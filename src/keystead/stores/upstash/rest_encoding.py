"""Commands as JSON, and replies from JSON: bytes on both sides.

Arguments are JSON strings, so only UTF-8 text is sent as it is. Any other bytes are sent to a script that decodes them,
which takes one call as well. Replies are asked for in base64, so that they may be any bytes.
"""

from __future__ import annotations

import hashlib
import json
from binascii import a2b_base64
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from keystead.errors import BadArgument
from keystead.stores.commands import Call
from keystead.stores.redis.atomic_script import COUNTERS
from keystead.stores.redis.reply_errors import ReplyError

_FOLDER: Final = files(__package__)
_CARRIER: Final = _FOLDER.joinpath("carrier.lua").read_text()
_BINARY: Final = _FOLDER.joinpath("binary.lua").read_text()
_COMMAND: Final = _BINARY + _FOLDER.joinpath("command.lua").read_text()
# Each byte as its character: printable ASCII as it is, all others as the character 256 + byte.
_CODED: Final = {byte: byte if 32 <= byte < 127 and byte not in b'"\\' else 256 + byte for byte in range(256)}
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


class Scripted(NamedTuple):
    """A script as it is sent."""

    text: str
    digest: str


class RestEncoding:
    """
    limit      the size of a request; no command may be larger
    base64     whether the server returns base64 as it was asked to
    read_only  whether scripts must be the kind that cannot write
    """

    def __init__(self, limit: int, read_only: bool) -> None:
        self.limit = limit
        self.base64 = True
        self._suffix = "_RO" if read_only else ""

    def command(self, call: Call) -> bytes:
        """The JSON of a command. Raises BadArgument."""
        words = [call.spec.name.encode(), *call.args]
        try:
            text = [word.decode() for word in words]
        except UnicodeDecodeError:
            return self._binary_command(call, words)
        body = _JSON.encode(text).encode()
        # Control characters and quotes may make text larger than the same as bytes.
        return body if len(body) <= self.limit else self._binary_command(call, words)

    def script(self, text: bytes, rest: Sequence[bytes], by_text: bool, call: Call) -> bytes:
        """The JSON that runs a script, by its text or by its digest. Raises BadArgument."""
        try:
            body = self._script(carried(text, False), [word.decode() for word in rest], by_text)
            if len(body) <= self.limit:
                return body
        except UnicodeDecodeError:
            pass
        self._require_base64(call)
        return self._fitting(call, self._script(carried(text, True), [_code(word) for word in rest], by_text))

    def _binary_command(self, call: Call, words: Sequence[bytes]) -> bytes:
        self._require_base64(call)
        body = self._script(_command_script(), ["0", *map(_code, words)], True)
        return self._fitting(call, body)

    def _script(self, script: Scripted, rest: list[str], by_text: bool) -> bytes:
        start = ["EVAL" + self._suffix, script.text] if by_text else ["EVALSHA" + self._suffix, script.digest]
        return _JSON.encode(start + rest).encode()

    def _require_base64(self, call: Call) -> None:
        if not self.base64:
            raise call.blame(BadArgument("this server returns text only, so bytes that are not UTF-8 cannot be stored"))

    def _fitting(self, call: Call, body: bytes) -> bytes:
        if len(body) > self.limit:
            raise call.blame(
                BadArgument(
                    f"a request of {len(body):,} bytes is larger than {self.limit:,}; if your plan allows more, say so"
                    " in the URL, as in ?max_request=10mb"
                )
            )
        return body

    def reply(self, call: Call | None, result: Any) -> Any:
        """A reply in the form of RESP2: bytes, int, None, lists of them, or ReplyError. Raises ValueError."""
        if not isinstance(result, dict):
            raise ValueError("neither result nor error")
        if "error" in result and result["error"] is not None:
            return ReplyError(str(result["error"]))
        decoded = self._decode(result["result"]) if "result" in result else None
        if call is not None:
            return int(decoded) if type(decoded) is bytes and call.spec.name in COUNTERS else decoded
        if type(decoded) is list and len(decoded) == 3 and type(decoded[2]) is bytes:
            stopped, replies, failed = decoded  # see carrier.lua
            return [stopped, [*replies[:-1], ReplyError(failed.decode("utf-8", "replace"))]]
        return decoded

    def _decode(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            if not self.base64:
                return value.encode("utf-8", "surrogatepass")
            return b"OK" if value == "OK" else a2b_base64(value, strict_mode=True)
        return [self._decode(one) for one in value] if kind is list else value


def _code(word: bytes) -> str:
    return word.decode("latin-1").translate(_CODED)


@lru_cache(maxsize=1024)
def carried(text: bytes, binary: bool) -> Scripted:
    """The script inside of the one that is sent."""
    script = f"{_BINARY if binary else ''}local function run(KEYS, ARGV)\n{text.decode()}\nend\n{_CARRIER}"
    return Scripted(script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())


@lru_cache(maxsize=1)
def _command_script() -> Scripted:
    return Scripted(_COMMAND, hashlib.sha1(_COMMAND.encode(), usedforsecurity=False).hexdigest())
