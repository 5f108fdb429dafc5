"""Patterns match like a real server."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keystead.stores.globs import compile_glob, escape, literal_prefix
from tests.servers import Server

ALPHABET = [bytes([byte]) for byte in b"ab-^]\\*?[\n\xff"]
TEXTS = st.lists(st.sampled_from(ALPHABET), max_size=7).map(b"".join)
# Where a byte above 127 stands in a range depends on the machine that the server was compiled for.
PATTERNS = st.lists(st.sampled_from(ALPHABET[:-1]), max_size=7).map(b"".join)
# Redis finds the empty key by `*`, but not by `**`, which here is the same; so only other keys are compared.
KEYS = st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=7).map(b"".join)


def keys_that_match(server: Server, pattern: bytes, keys: set[bytes]) -> set[bytes]:
    with server.wire() as wire:
        wire.call("FLUSHALL")
        wire.replies([("SET", key, "") for key in keys])
        cursor, found = wire.call("SCAN", 0, "MATCH", pattern, "COUNT", 1000)
        assert cursor == b"0"
        return set(found)


@pytest.mark.matrix
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=PATTERNS, keys=st.sets(KEYS, min_size=1, max_size=20))
@example(pattern=b"[", keys={b"", b"[", b"a"})
@example(pattern=b"[^", keys={b"", b"^", b"a"})
@example(pattern=b"[]a]", keys={b"]a]", b"a", b"]", b"a]"})
@example(pattern=b"[a-", keys={b"a", b"-", b"b"})
@example(pattern=b"[a", keys={b"a", b"["})
@example(pattern=b"[\\", keys={b"\\", b"["})
@example(pattern=b"\\", keys={b"\\", b""})
@example(pattern=b"a\\", keys={b"a\\", b"a"})
@example(pattern=b"[b-a]", keys={b"a", b"b", b"-"})
@example(pattern=b"[a-]]", keys={b"a", b"]", b"a]", b"^]"})
@example(pattern=b"[a-\\]]", keys={b"a", b"\\", b"]", b"\\]", b"a]"})
@example(pattern=b"*", keys={b"\n", b""})
@example(pattern=b"\xff[^\xff]*", keys={b"\xff\xff", b"\xffa", b"\xffab\xff"})
@example(pattern=b"**", keys={b"a", b"\n"})
@example(pattern=b"?", keys={b"\n", b"\xff", b""})
def test_a_pattern_matches_like_the_server(redis: Server, pattern: bytes, keys: set[bytes]) -> None:
    glob = compile_glob(pattern)
    assert {key for key in keys if glob.fullmatch(key)} == keys_that_match(redis, pattern, keys)


@given(TEXTS, TEXTS)
def test_an_escaped_text_matches_itself_and_nothing_else(text: bytes, other: bytes) -> None:
    glob = compile_glob(escape(text.decode("latin-1")).encode("latin-1"))
    assert glob.fullmatch(text)
    assert bool(glob.fullmatch(other)) == (text == other)


@given(TEXTS, TEXTS)
def test_every_match_begins_with_the_literal_prefix(pattern: bytes, text: bytes) -> None:
    if compile_glob(pattern).fullmatch(text):
        assert text.startswith(literal_prefix(pattern))


def test_the_literal_prefix_is_as_long_as_possible() -> None:
    assert literal_prefix(b"user:*") == b"user:"
    assert literal_prefix(b"a\\*b*") == b"a*b"
    assert literal_prefix(b"plain") == b"plain"
    assert literal_prefix(b"[a]b") == b""
