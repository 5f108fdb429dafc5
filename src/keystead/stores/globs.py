"""Glob patterns with Redis's rules, for stores that match keys themselves."""

from __future__ import annotations

import re

_SPECIAL = frozenset(b"*?[\\")


def escape(text: str) -> str:
    """The pattern that matches exactly this text."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)


def literal_prefix(pattern: bytes) -> bytes:
    """The bytes that every match begins with."""
    prefix = bytearray()
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        if byte == 0x5C and at + 1 < len(pattern):
            at += 1
            byte = pattern[at]
        elif byte in _SPECIAL:
            break
        prefix.append(byte)
        at += 1
    return bytes(prefix)


def key_after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than all keys with the prefix; None: there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def compile_glob(pattern: bytes) -> re.Pattern[bytes]:
    """`*` any bytes, `?` one byte, `[abc]` `[a-z]` `[^a]` one of them, `\\x` the byte x itself.

    A part between two `*` is matched at its first occurrence, without backtracking: a hostile pattern or key costs no
    more than its length squared.
    """
    out: list[bytes] = []
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"*":
            if not out or out[-1] != b".*":
                out.append(b".*")
        elif byte == b"?":
            out.append(b".")
        elif byte == b"[":
            at = _character_class(pattern, at + 1, out)
        elif byte == b"\\" and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at : at + 1]))
        else:
            out.append(re.escape(byte))
        at += 1
    return re.compile(_without_retries(out), re.DOTALL)


def _without_retries(pieces: list[bytes]) -> bytes:
    """The pieces as one expression; each run between two `.*` is an atomic group."""
    runs: list[list[bytes]] = [[]]
    for piece in pieces:
        if piece == b".*":
            runs.append([])
        else:
            runs[-1].append(piece)
    head, *rest = [b"".join(run) for run in runs]
    if not rest:
        return head
    return head + b"".join(b"(?>.*?" + run + b")" for run in rest[:-1]) + b".*" + rest[-1]


def _character_class(pattern: bytes, at: int, out: list[bytes]) -> int:
    """Parse a class that starts after its `[`; return the index of its last byte. It may end with the pattern."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    allowed: set[int] = set()
    while at < len(pattern):
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
            allowed.add(pattern[at])
        elif pattern[at : at + 1] == b"]":
            break
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            allowed.update(range(low, high + 1))
            at += 2
        else:
            allowed.add(pattern[at])
        at += 1
    members = set(range(256)) - allowed if negated else allowed
    out.append(b"(?!)" if not members else b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]")
    return at
