"""Overlapping patterns are found, with a common key; others are not reported."""

from collections.abc import Iterator
from datetime import date
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keystead.schema.overlap import ANY, Characters
from keystead.schema.pattern import Pattern
from keystead.schema.placeholder_types import TYPES, placeholder

# Few characters, so that two patterns often meet.
LITERALS = st.text(alphabet="a_:2%", max_size=3)
BETWEEN = st.text(alphabet="a_:2", min_size=1, max_size=2)
TEXTS = st.text(alphabet="a_:%2A-~é", min_size=1, max_size=4)
LONG = TEXTS | st.text(alphabet="aé:", min_size=20, max_size=50)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": LONG,
    "uri": LONG,
    "int": st.integers(-25, 250),
    "token": st.text(alphabet="a_2-A", min_size=1, max_size=4),
    "alnum": st.text(alphabet="a2A", min_size=1, max_size=4),
    "hex": st.text(alphabet="a2", min_size=1, max_size=4),
    "slug": st.text(alphabet="a2", min_size=1, max_size=4),
    "uuid": st.uuids(),
    "date": st.dates(),
    "month": st.dates().map(lambda day: day.replace(day=1)),
}


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """Patterns with none to two placeholders; the second may be in a tail."""
    pieces = [
        f"{{p{at}:{draw(st.sampled_from(sorted(VALUES)))}{draw(st.sampled_from(['', '', '<=45']))}}}" for at in range(2)
    ]
    before, between, behind = draw(LITERALS), draw(BETWEEN), draw(LITERALS)
    return Pattern(
        draw(
            st.sampled_from(
                [
                    f"{before}a",
                    f"{before}{pieces[0]}{behind}",
                    f"{before}{pieces[0]}{between}{pieces[1]}{behind}",
                    f"{before}{pieces[0]}[{between}{pieces[1]}]",
                ]
            )
        )
    )


def keys_of(pattern: Pattern) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries({name: VALUES[type_.name] for name, type_ in pattern.types.items()}).map(
        pattern.render
    )


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        ("user:{id}", "user:{uid}:sessions", None),
        ("x:{d:date}", "x:{n:int}", None),
        ("x:{d:date}", "x:{m:month}", None),
        ("{guid}", "{guid}_readOnce", "a_readOnce"),
        ("{guid:alnum}", "{guid:alnum}_readOnce", None),
        ("session:user:{id}", "session:{kind}:{id}", "session:user:a"),
        ("receive:edge:index", "receive:edge:meta:{id}", None),
        ("receive:edge:index", "receive:{what}:index", "receive:edge:index"),
        ("{service}s:index", "counters:index", "counters:index"),
        ("{service}s:index", "s:index", None),  # a value is never empty
        ("x:{a}", "x:{b:uri}", "x:a"),
        ("x:{a}", "x:%41", None),  # never escaped without need
        ("x:{a}", "x:%3A", "x:%3A"),
        ("{a}[_{b}]", "a_b", "a_b"),
        ("{a}[_{b}]", "a", "a"),
        ("{a}[_{b}]", "a_", None),
        ("x:{a:hex}", "x:{a:slug}-", None),
        ("x:{a:uuid}", "x:{a:hex}", None),
        ("x:{a:uuid}", "x:{a:slug}", "x:aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"),
        ("x:{a:ip}", "x:{n:int}", None),
        ("x:{a:ip}", "x:203.0.113.256", None),
        ("x:{a:ip}", "x:203.0.113.255", "x:203.0.113.255"),
        ("x:{a:uri}", "x:%C3%A9", "x:%C3%A9"),
        ("x:{a:uri}", "x:%C3", None),
        ("x:{a:uri}", "x:%ED%A0%80", None),  # a surrogate
        ("x:{a:uri}", "x:%C0%BA", None),  # overlong
        ("x:{a<=45}", "x:" + "a" * 45, "x:" + "a" * 45),
        ("x:{a<=45}", "x:" + "a" * 46, None),
        ("x:{a<=45}", "x:" + "é" * 23, None),
        ("x:{a<=45}", "x:%~" + "A" * 43, "x:%~" + "A" * 43),
        ("x:{a<=45}", "x:%~" + "A" * 42 + "B", None),
        ("x:{a}", "x:%~" + "A" * 43, None),
        ("{a<=45}s", "{b<=60}" + "t" * 20 + "s", "a" + "t" * 20 + "s"),
        ("{a<=45}s", "{b<=60}" + "t" * 45 + "s", None),
    ],
)
def test_a_shared_key_is_shown_and_its_absence_is_known(one: str, other: str, key: str | None) -> None:
    assert Pattern(one).overlap(Pattern(other)) == key
    assert Pattern(other).overlap(Pattern(one)) == key


@given(patterns(), patterns())
def test_a_shared_key_is_read_by_both_patterns(one: Pattern, other: Pattern) -> None:
    key = one.overlap(other)
    assert key is None or (one.parse(key) is not None and other.parse(key) is not None)
    assert (other.overlap(one) is None) == (key is None)


@given(st.data())
def test_two_patterns_that_read_the_same_key_are_found(data: st.DataObject) -> None:
    one, other = data.draw(patterns()), data.draw(patterns())
    key = data.draw(keys_of(one))
    if other.parse(key) is not None:
        assert one.overlap(other) is not None


@given(st.data())
def test_a_pattern_meets_a_literal_exactly_if_it_reads_it(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    key = data.draw(keys_of(pattern))
    at, length = data.draw(st.integers(0, len(key))), data.draw(st.integers(0, 3))
    key = key[:at] + data.draw(st.text(alphabet="a_:2%3AFf~é-", max_size=3)) + key[at + length :] or "a"
    assert pattern.overlap(Pattern(key)) == (key if pattern.parse(key) is not None else None)


@given(patterns())
@example(Pattern("{a:ip}"))
def test_a_pattern_meets_itself(pattern: Pattern) -> None:
    key = pattern.overlap(pattern)
    assert key is not None
    assert pattern.parse(key) is not None


def days() -> Iterator[str]:
    for year, month, day in product((0, 1, 4, 1900, 2000, 2023, 2024), range(14), (0, 1, 28, 29, 30, 31, 32)):
        yield f"{year:04d}-{month:02d}-{day:02d}"


def test_exactly_the_days_of_the_calendar_are_dates() -> None:
    pattern = Pattern("{day:date}")

    def is_day(text: str) -> bool:
        try:
            return bool(date.fromisoformat(text))
        except ValueError:
            return False

    assert [day for day in days() if pattern.overlap(Pattern(day))] == [day for day in days() if is_day(day)]


@cache
def address() -> Pattern:
    return Pattern("{ip:ip}")


@given(
    st.lists(st.sampled_from(["0", "0", "1", "ffff", "01", "g", ""]), min_size=2, max_size=9),
    st.sampled_from(["", "%a", "%"]),
)
@example(["", "", ""], "")
@example(["1", "0", "0", "1", "0", "0", "0", "1"], "")
@example(["1", "", "1"], "%a")
def test_exactly_the_compressed_addresses_are_addresses(groups: list[str], scope: str) -> None:
    key = ":".join(groups).replace(":", "%3A") + scope.replace("%", "%25")
    assert address().overlap(Pattern(key)) == (key if address().parse(key) is not None else None)


@given(VALUES["text"])
def test_an_address_of_any_scope_is_an_address(scope: str) -> None:
    key = Pattern("{a}").render({"a": f"fe80::1%{scope}"})
    assert (address().overlap(Pattern(key)) is not None) == (address().parse(key) is not None)


@pytest.mark.parametrize(("characters", "meets"), [("ab", False), ("abx", True), (None, True)])
def test_a_custom_type_is_assumed_to_produce_any_text_of_its_characters(characters: str | None, meets: bool) -> None:
    placeholder("letters", str, render=str, parse=str, characters=characters)
    try:
        assert (Pattern("k:{a:letters}").overlap(Pattern("k:axb")) is not None) == meets
    finally:
        del TYPES["letters"]


def test_a_shared_key_is_as_readable_as_it_can_be() -> None:
    assert (Characters.between("\0", "\x7f")).pick() == "a"
    assert (ANY - Characters.between("\0", "\xff")).pick() == "Ā"
    assert Pattern("user:{id}").overlap(Pattern("{kind}:{id:int}")) == "user:0"


sets = st.lists(st.sampled_from("abcdxyz€\U0010ffff")).map(Characters.of)


@given(sets, sets)
def test_character_sets_are_sets(one: Characters, other: Characters) -> None:
    assert set(one | other) == set(one) | set(other)
    assert set(one & other) == set(one) & set(other)
    assert set(one - other) == set(one) - set(other)
    assert bool(one) == bool(set(one))


def test_a_set_of_characters_never_holds_a_surrogate() -> None:
    assert not Characters.of("\ud800\udfff")
    assert "\ud800" not in ANY - Characters.of("a")
