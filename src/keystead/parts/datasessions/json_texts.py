"""Session data as it is stored: each value as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from keystead.errors import BadValue, Unreadable

_JSON: Final[Any] = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_make: Final[Any] = getattr(json.encoder, "c_make_encoder", None)
# As `_JSON.encode`, which makes this anew for each value, in four times the time. PyPy has no such function.
_quote: Final[Any] = json.encoder.encode_basestring
_encode: Final[Any] = _make and _make(None, _JSON.default, _quote, None, ":", ",", False, False, False)
_DECODER: Final[Any] = json.JSONDecoder()
_scan: Final = _DECODER.scan_once  # a third of the time of `decode`, for text without white space around it


def encode_texts(data: Mapping[str, Any], value_max_bytes: int) -> dict[str, str]:
    """Each value as JSON. Raises BadValue for a name that is not text, and a value that JSON cannot hold."""
    texts = {}
    for name, value in data.items():
        if type(name) is not str and not isinstance(name, str):
            raise BadValue(f"a key of a session must be text, not {type(name).__name__}")
        try:
            text = _dumps(value)
            size = len(text.encode()) if len(text) * 4 > value_max_bytes else 0
            name.encode()
        except (TypeError, ValueError, RecursionError) as error:
            # The name only: the value may be secret.
            sentence = f"{name!r:.80} of the session cannot be stored as JSON ({type(error).__name__})"
            raise BadValue(f"{sentence}; store text, numbers, lists and dicts") from None
        if size > value_max_bytes:
            raise BadValue(
                f"{name!r:.80} of the session has {size} bytes as JSON; at most {value_max_bytes} are stored"
            )
        texts[str(name)] = text
    return texts


def _dumps(value: Any) -> str:
    return cast("str", _JSON.encode(value)) if _encode is None or type(value) is str else "".join(_encode(value, 0))


def decode_texts(texts: Mapping[str, str], key: str) -> dict[str, Any]:
    """Raises Unreadable."""
    try:
        try:
            data = {}
            for name, text in texts.items():
                value, end = _scan(text, 0)
                data[name] = value if end == len(text) else _DECODER.decode(text)
            return data
        except StopIteration:  # one that is not JSON, or begins with white space
            return {name: _DECODER.decode(text) for name, text in texts.items()}
    except (ValueError, RecursionError):
        raise Unreadable("a value of the session is not JSON", key) from None


def stored_texts(data: Mapping[bytes, bytes], key: str) -> dict[str, str]:
    """Raises Unreadable."""
    try:
        return {name.decode(): text.decode() for name, text in data.items()}
    except UnicodeDecodeError:
        raise Unreadable("the session holds data that is not text", key) from None
