"""The command table is correct for each command."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead.errors import BadArgument, BadLifetime, BadOption, CommandError, NotANumber, UnknownCommand, WrongArity
from keystead.stores.commands import (
    AMOUNTS,
    INT64_MAX,
    INT64_MIN,
    KINDS,
    LATEST_MS,
    TABLE,
    Spec,
    encode,
    integer,
    read,
    score,
)
from tests.servers import Server


def arguments(spec: Spec) -> list[str]:
    """The required words of a usage, as valid arguments."""
    fits = {"seconds": "10", "ms": "10000", "amount": "1", "score": "1", "id": "1-1", "cursor": "0", "length": "1"}
    fits |= {"min": "0", "max": "1", "start": "0", "stop": "1", "end": "1", "index": "0", "count": "1", "[=": ""}
    usage = spec.usage
    while "[" in usage:  # what stands in brackets may be left out
        usage = re.sub(r" ?\[[^\[\]]*\]", "", usage)
    usage = usage.replace("* | id", "*")
    if spec.name == "PEXPIREAT":
        fits["ms"] = str(LATEST_MS)
    return [fits.get(word, word) for word in usage.split()[1:]]


def test_the_shortest_form_of_the_usage_is_the_fewest_arguments() -> None:
    for spec in TABLE.values():
        assert len(arguments(spec)) == spec.least, spec.name
        assert read((spec.name, *arguments(spec))).spec is spec


def test_one_argument_less_is_refused_with_the_usage() -> None:
    for spec in TABLE.values():
        if spec.least:
            with pytest.raises(WrongArity) as caught:
                read((spec.name, *arguments(spec)[:-1]))
            assert spec.usage in str(caught.value)
            assert caught.value.command == spec.name


def test_more_than_the_most_arguments_are_refused() -> None:
    for spec in TABLE.values():
        if spec.most is not None:
            with pytest.raises(WrongArity, match=spec.name):
                read((spec.name, *arguments(spec), *["x"] * (spec.most - spec.least + 1)))


def test_the_usage_names_the_keys() -> None:
    for spec in TABLE.values():
        words = spec.usage.split()
        assert words[0] == spec.name == spec.name.upper()
        assert (len(words) > 1 and words[1] == "key") == (spec.keys != 0), spec.name
        assert ("key [key ...]" in spec.usage) == (spec.keys == -1), spec.name
        assert spec.kind is None or spec.kind in KINDS, spec.name
        assert spec.summary, spec.name


def test_the_server_agrees_on_arity_keys_and_writing(redis: Server) -> None:
    for spec in TABLE.values():
        [[_, arity, flags, first, last, *_]] = redis.ask("COMMAND", "INFO", spec.name)
        assert spec.least == abs(arity) - 1 or (spec.name, arity) == ("XTRIM", -4), spec.name
        assert arity <= 0 or spec.most == spec.least, spec.name
        assert spec.writes == (b"write" in flags or spec.name == "PUBLISH"), spec.name
        assert spec.keys == (0 if first == 0 else -1 if last == -1 else 1), spec.name


def test_the_server_finds_the_same_keys(redis: Server) -> None:
    for spec in TABLE.values():
        if spec.keys:
            call = read((spec.name, *arguments(spec)))
            assert redis.ask("COMMAND", "GETKEYS", spec.name, *arguments(spec)) == list(call.keys), spec.name


@pytest.mark.parametrize(
    ("command", "error", "sentence"),
    [
        (("NOPE",), UnknownCommand, "NOPE: no such command here; keystead guide commands lists them"),
        (("GET",), WrongArity, "GET: 0 arguments do not fit. Write: GET key"),
        (("GET", "a", "b"), WrongArity, "GET a: 2 arguments do not fit. Write: GET key"),
        (("GET", 7), BadArgument, "GET 7: a key must be text or bytes, not int"),
        (("GET", ()), BadArgument, "GET: argument 1: an argument must be text, bytes, an int or a float, not tuple"),
        (
            ("SET", "k", True),
            BadArgument,
            "SET k: argument 2: an argument must be text, bytes, an int or a float, not bool; write 1 or 0",
        ),
        (("INCR", "k"), UnknownCommand, "INCR: no such command here; write INCRBY key 1"),
        (("HGETAL", "k"), UnknownCommand, "HGETAL: no such command here; is it HGETALL?"),
        (
            ("GET k",),
            UnknownCommand,
            'GET k: no such command; each argument is a separate item, as in ("GET", "key")',
        ),
        (("SET", "k", "v", "NX", "XX"), BadOption, "SET k: NX and XX exclude each other; write one of them"),
        (("INCRBY", "n", "x"), NotANumber, "INCRBY n: 'x' is not an integer of 64 bits"),
        (("ZADD", "z", "x", "m"), NotANumber, "ZADD z: 'x' is not a score: write a number, inf or -inf"),
        (
            ("SET", "k", "v", "PX", 0),
            BadLifetime,
            "SET k: a lifetime must be more than zero, not 0; to remove the key, write DEL",
        ),
        (("LPOP", "q", -1), NotANumber, "LPOP q: a count must be zero or more, not -1"),
        (("SET", "k", "v", "EX"), BadOption, "SET k: EX needs a value after it"),
    ],
    ids=str,
)
def test_an_error_is_a_sentence_that_names_command_and_key(
    command: tuple[str, ...], error: type[CommandError], sentence: str
) -> None:
    with pytest.raises(CommandError) as caught:
        read(command)
    assert type(caught.value) is error
    assert str(caught.value) == sentence


def test_a_key_in_an_error_stays_on_one_line_and_is_cut() -> None:
    with pytest.raises(WrongArity) as caught:
        read(("GET", "a\r\n\x00" + "k" * 10_000, "b"))
    assert "\n" not in str(caught.value)
    assert "a\\r\\n\\x00kkk" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_amounts_are_read_from_one_key_and_what_else_reads_one_tells_no_amount() -> None:
    reads = {name for name, spec in TABLE.items() if not spec.writes and spec.keys == 1}
    assert reads - set(AMOUNTS) == {
        *("TYPE", "HMGET", "HGETALL", "SMEMBERS", "ZMSCORE", "ZRANGE", "LRANGE", "XRANGE", "XREVRANGE"),  # no number
        *("PTTL", "PEXPIRETIME", "ZRANK", "ZREVRANK"),  # one whose -1, or nil, is not less than 1
    }
    assert set(AMOUNTS) < reads


@given(st.integers())
def test_integers_are_those_of_64_bits(number: int) -> None:
    text = b"%d" % number
    if INT64_MIN <= number <= INT64_MAX:
        assert integer(text) == number
    else:
        with pytest.raises(NotANumber):
            integer(text)


@given(st.floats(allow_nan=False))
def test_every_float_survives_as_a_score(number: float) -> None:
    assert score(encode(number)) == number
