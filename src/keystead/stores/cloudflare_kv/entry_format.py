"""The format of entries in Workers KV: a valid name, the value as it is, and its exact deadline as metadata.

A value is stored unchanged, so that a Worker reads what Python wrote. Its deadline is in the metadata of the key, in ms
since 1970: `{"keystead": {"expires_at_ms": 1790000000123}}`. KV itself counts in seconds and refuses lifetimes
below a minute, so its own expiry only frees space: a little after the deadline, never before. An entry that others
wrote has no such metadata, and lives as long as KV says.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from keystead.errors import BadArgument
from keystead.stores.sql.string_slot import Item

KEY_BYTES = 512  # the longest name
VALUE_BYTES = 25 << 20
SHORTEST_S = 60  # the shortest lifetime that KV accepts
LONGEST_S = 2**31 - 1  # longer lifetimes are only in the metadata
METADATA = "keystead"
_ESCAPE = "\N{SYMBOL FOR ESCAPE}"  # precedes two hex digits for each byte that a name cannot have
_ESCAPED = re.compile(f"{_ESCAPE}([0-9A-F]{{2}})")
_UNFIT = re.compile(f"[\x00-\x1f\x7f\udc80-\udcff{_ESCAPE}]")
_BYTE_ORDER_MARK = "\ufeff"  # decoders drop it at the start of a text


def name_of(key: bytes) -> str:
    """The name of a key; no two keys share one. Raises BadArgument if it is too long.

    Text is its own name. Other bytes are escaped: control characters, bytes that are not UTF-8, and the empty key,
    `.` and `..`, which KV does not accept. Names keep the prefixes of keys.
    """
    name = _ESCAPE if not key else _escape_bytes(key) if key in (b".", b"..") else _escape(key)
    if len(name.encode()) > KEY_BYTES:
        escaped = "" if len(key) > KEY_BYTES else " once it is escaped"
        raise BadArgument(f"the key has more than {KEY_BYTES} bytes{escaped}, the most that Cloudflare KV accepts")
    return name


def key_of(name: str) -> bytes:
    if name == _ESCAPE:
        return b""
    pieces = _ESCAPED.split(name)
    return b"".join(
        bytes.fromhex(piece) if place % 2 else piece.encode("utf-8", "surrogatepass")
        for place, piece in enumerate(pieces)
    )


def prefix_of(prefix: bytes) -> str:
    """The prefix of the names of all keys with this prefix. It may be shorter, and match more names."""
    text = prefix.decode("utf-8", "surrogateescape")
    # The last bytes may be the start of a character; and the names of `.` and `..` are escaped as a whole.
    text = text.rstrip("".join(map(chr, range(0xDC80, 0xDD00))))
    return "" if text in (".", "..") else _escape(text.encode("utf-8", "surrogateescape"))


def _escape(key: bytes) -> str:
    text = key.decode("utf-8", "surrogateescape")
    if text.isprintable() and _ESCAPE not in text:
        return text
    return _UNFIT.sub(lambda found: _escape_bytes(found[0].encode("utf-8", "surrogateescape")), text)


def _escape_bytes(data: bytes) -> str:
    return "".join(f"{_ESCAPE}{byte:02X}" for byte in data)


def pair_of(name: str, item: Item, now_ms: int) -> dict[str, Any]:
    """An item as a pair of a bulk write. The item has not expired."""
    pair: dict[str, Any] = {"key": name}
    ours: dict[str, Any] = {}
    try:
        pair["value"] = item.value.decode()
        is_text = not pair["value"].startswith(_BYTE_ORDER_MARK)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        pair |= {"value": base64.b64encode(item.value).decode(), "base64": True}
        ours["binary"] = True
    if item.expires_at is not None:
        ours["expires_at_ms"] = item.expires_at
        # Rounded up, and one more: the clock of KV counts whole seconds.
        left_s = -((now_ms - item.expires_at) // 1000) + 1
        if left_s <= LONGEST_S:
            pair["expiration_ttl"] = max(SHORTEST_S, left_s)
    if ours:
        pair["metadata"] = {METADATA: ours}
    return pair


def deadline_of(metadata: Any, expiration: Any) -> int | None:
    """The deadline of an entry in ms: ours, or else the one that KV has, in seconds."""
    at_ms = _ours(metadata).get("expires_at_ms")
    if isinstance(at_ms, int) and not isinstance(at_ms, bool):
        return at_ms
    return int(expiration) * 1000 if isinstance(expiration, int | float) and expiration > 0 else None


def needs_bytes(text: str, metadata: Any) -> bool:
    """Whether a value that was read as text may have been other bytes: then it is read again as bytes."""
    return "\N{REPLACEMENT CHARACTER}" in text or _ours(metadata).get("binary") is True


def _ours(metadata: Any) -> dict[str, Any]:
    ours = metadata.get(METADATA) if isinstance(metadata, dict) else None
    return ours if isinstance(ours, dict) else {}
