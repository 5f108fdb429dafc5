"""Patterns are injective and reversible."""

import uuid
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import date, datetime
from enum import Enum, StrEnum
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, ip_address
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from keystead.errors import BadDeclaration, BadKey
from keystead.schema.pattern import Pattern
from keystead.schema.placeholder import Hashed
from keystead.schema.placeholder_types import TYPES, PlaceholderType, placeholder
from keystead.stores.globs import compile_glob

# Characters that are likely to break parsing, so that examples contain them often.
TRICKY = st.text(alphabet="%:{}_-~25As é\n*[]", min_size=1, max_size=5)
ANY_TEXT = st.one_of(TRICKY, st.text(min_size=1), st.text(min_size=50, max_size=70))


def texts_of(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=1, max_size=60)


LOWER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
ALNUM = LOWER + LOWER.upper() + DIGITS
SCOPED = st.builds(
    lambda address, scope: IPv6Address(f"{address}%{scope}"),
    st.ip_addresses(v=6),
    st.text(min_size=1, max_size=5).filter(lambda text: not set(text) & set("%/")),
)
ZEROS = st.lists(st.sampled_from([0, 0, 1, 0xFFFF]), min_size=8, max_size=8).map(
    lambda groups: IPv6Address(":".join(f"{group:x}" for group in groups))
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": ANY_TEXT,
    "int": st.integers(),
    "token": texts_of(ALNUM + "_-"),
    "alnum": texts_of(ALNUM),
    "hex": texts_of(DIGITS + "abcdef"),
    "slug": texts_of(LOWER + DIGITS + "-").filter(lambda text: text[0] != "-"),
    "uuid": st.uuids(),
    "date": st.dates(),
    "month": st.dates().map(lambda day: day.replace(day=1)),
    "uri": ANY_TEXT,
    "ip": st.one_of(st.ip_addresses(), ZEROS, SCOPED),
}
BUILT_IN = sorted(VALUES)


@st.composite
def patterns(draw: st.DrawFn, types: list[str] = BUILT_IN) -> Pattern:
    """Patterns with one to three placeholders, and with literals that are easily taken for values."""
    literals = st.text(alphabet="_:-~25Asé%", max_size=3)
    between = st.text(alphabet="_:-~25Asé", min_size=1, max_size=3)
    text = draw(literals)
    count = draw(st.integers(1, 3))
    for at in range(count):
        bound = draw(st.sampled_from(["", "", "<=45", "<=60"]))
        piece = f"{{p{at}:{draw(st.sampled_from(types))}{bound}}}"
        if at == 0:
            text += piece
        elif at == count - 1 and draw(st.booleans()):
            return Pattern(f"{text}{draw(literals)}[{draw(between)}{piece}]".replace("}%", "}_%"))
        else:
            text += draw(between) + piece
    return Pattern(text + draw(literals))


def has_tail(pattern: Pattern) -> bool:
    return pattern.text.endswith("]")


def values_of(pattern: Pattern) -> st.SearchStrategy[dict[str, Any]]:
    choices = {name: VALUES[type_.name] for name, type_ in pattern.types.items()}
    if has_tail(pattern):
        choices[pattern.names[-1]] |= st.none()
    return st.fixed_dictionaries(choices)


@pytest.mark.parametrize("name", BUILT_IN)
@given(data=st.data())
def test_a_key_of_any_value_is_read_back_as_that_value(name: str, data: st.DataObject) -> None:
    pattern = Pattern(f"x:{{value:{name}}}:y")
    value = data.draw(VALUES[name])
    key = pattern.render({"value": value})
    assert key.count(":") == 2
    assert pattern.parse(key) == {"value": value}
    assert pattern.parse(key.encode()) == {"value": value}


@given(st.data())
def test_a_key_of_any_pattern_is_read_back(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    values = data.draw(values_of(pattern))
    key = pattern.render(values)
    parsed = pattern.parse(key)
    assert parsed is not None
    assert pattern.render(parsed) == key
    assert {name: value for name, value in parsed.items() if not isinstance(value, Hashed)}.items() <= values.items()


@given(st.data())
def test_a_tagged_key_of_any_pattern_is_read_back(data: st.DataObject) -> None:
    untagged = data.draw(patterns())
    pattern = Pattern(untagged.text, tag=untagged.names[0])
    values = data.draw(values_of(pattern))
    key = pattern.render(values, tagged=True)
    assert f"{{{pattern.render_one(untagged.names[0], values[untagged.names[0]])}}}" in key
    assert pattern.parse(key, tagged=True) == untagged.parse(untagged.render(values))
    assert pattern.parse(key) is None


@st.composite
def texts_only(draw: st.DrawFn) -> Pattern:
    return draw(patterns(["text", "uri"]))


@given(st.data())
def test_two_different_values_never_make_the_same_key(data: st.DataObject) -> None:
    pattern = data.draw(texts_only())
    few = st.text(alphabet=":%_-25As", min_size=1, max_size=4)
    tuples = st.tuples(
        *(few | st.none() if has_tail(pattern) and n == pattern.names[-1] else few for n in pattern.names)
    )
    one, other = data.draw(tuples), data.draw(tuples)
    assume(one != other)
    render = pattern.renderer()
    assert render(*one) != render(*other)


@given(st.data())
def test_a_key_is_read_only_if_it_is_written_exactly_so(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    key = data.draw(st.text(alphabet="_:-~25Asé%3af", max_size=12) | values_of(pattern).map(pattern.render))
    at = data.draw(st.integers(0, len(key)))
    changed = (
        key[:at] + data.draw(st.text(alphabet="_:-~25Asé%3af{}", max_size=3)) + key[at + data.draw(st.integers(0, 3)) :]
    )
    parsed = pattern.parse(changed)
    assert parsed is None or pattern.render(parsed) == changed


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("x:{a}", "x:%41"),  # an escape that is not needed
        ("x:{a}", "x:%3a"),  # in lower-case
        ("x:{a}", "x:%"),
        ("x:{a}", "x:%3"),
        ("x:{a}", "x:%FF"),  # no UTF-8
        ("x:{a}", "x:%ED%A0%80"),  # a surrogate
        ("x:{a}", "x:"),
        ("x:{a}", "x:a:b"),
        ("x:{a}", "x:{a}"),
        ("x:{a}", "x:a\n:"),
        ("x:{a}", "y:a"),
        ("x:{a}", "x:\udc80"),
        ("x:{a}", "x:%~47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"),  # hashed without a bound
        ("x:{a<=45}", "x:%~47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFV"),  # bits behind the last
        ("x:{a<=45}", "x:%~47DEQpj8"),
        ("x:{a<=45}", "x:" + "a" * 46),
        ("x:{a:date<=45}", "x:%~47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"),  # a date never is that long
        ("x:{a:int}", "x:007"),
        ("x:{a:int}", "x:-0"),
        ("x:{a:int}", "x:+1"),
        ("x:{a:int}", "x:1_0"),
        ("x:{a:int}", "x:٣"),
        ("x:{a:int}", "x: 1"),
        ("x:{a:hex}", "x:AB"),
        ("x:{a:slug}", "x:-a"),
        ("x:{a:token}", "x:a b"),
        ("x:{a:uuid}", "x:3F2A9C1E-8B4D-4F6A-9E2B-7C5D1A0B8E4F"),
        ("x:{a:uuid}", "x:3f2a9c1e8b4d4f6a9e2b7c5d1a0b8e4f"),
        ("x:{a:date}", "x:20260223"),
        ("x:{a:date}", "x:2026-W09-1"),
        ("x:{a:date}", "x:2026-02-30"),
        ("x:{a:month}", "x:2026-13"),
        ("x:{a:month}", "x:2026-02-01"),
        ("x:{a:uri}", "x:https%3A//example.com"),
        ("x:{a:ip}", "x:203.0.113.007"),
        ("x:{a:ip}", "x:%3A%3AFFFF"),
        ("x:{a:ip}", "x:0%3A0%3A0%3A0%3A0%3A0%3A0%3A1"),
        ("x:{a:ip}", "x:%3A%3Affff%3A203.0.113.7"),
        ("{a}[_{b}]", "a_"),
    ],
)
def test_parse_refuses_keys_that_render_never_produces(pattern: str, key: str) -> None:
    assert Pattern(pattern).parse(key) is None


def test_invalid_utf_8_is_not_read() -> None:
    assert Pattern("x:{a}").parse(b"x:\xff") is None


@pytest.mark.parametrize(
    ("pattern", "values", "key"),
    [
        ("sess:{sid}", {"sid": "Zk3-x_Q"}, "sess:Zk3-x_Q"),
        ("user:{uid}:sessions", {"uid": "80351110224678912"}, "user:80351110224678912:sessions"),
        ("receive:edge:index", {}, "receive:edge:index"),
        ("url:counter:{url:uri}", {"url": "https://example.com"}, "url:counter:https%3A%2F%2Fexample.com"),
        ("ranking:{id:slug}:scores", {"id": "example-a1b2c3d4"}, "ranking:example-a1b2c3d4:scores"),
        ("{service}s:index", {"service": "counter"}, "counters:index"),
        ("{service}s:index", {"service": "bbs"}, "bbss:index"),
        (
            "counter:{id:slug}:daily:{day:date}",
            {"id": "example-a1b2c3d4", "day": date(2026, 2, 23)},
            "counter:example-a1b2c3d4:daily:2026-02-23",
        ),
        ("dashboard:summary:{user_id:int}:{team_id:int}", {"user_id": 42, "team_id": 3}, "dashboard:summary:42:3"),
        ("crashreport:ratelimit:{ip:ip}", {"ip": IPv4Address("203.0.113.7")}, "crashreport:ratelimit:203.0.113.7"),
        ("{guid}_readOnce", {"guid": "abc_123"}, "abc_123_readOnce"),
        ("{ref}:{id:int}", {"ref": "WORK_REQUEST", "id": 101}, "WORK_REQUEST:101"),
        ("{key}[_{page}]", {"key": "ViewMode"}, "ViewMode"),
        ("{key}[_{page}]", {"key": "ViewMode", "page": None}, "ViewMode"),
        ("{key}[_{page}]", {"key": "ViewMode", "page": "Items/100"}, "ViewMode_Items/100"),
        ("{key}[_{page}]", {"key": "User_Theme"}, "User%5FTheme"),
        ("{key}[_{page}]", {"key": "My_Key", "page": "Page_123"}, "My%5FKey_Page_123"),
        ("quota:{month:month}", {"month": date(2026, 2, 1)}, "quota:2026-02"),
    ],
)
def test_the_keys_of_the_key_documents_are_made_byte_for_byte(pattern: str, values: dict[str, Any], key: str) -> None:
    assert Pattern(pattern).render(values) == key
    parsed = Pattern(pattern).parse(key)
    assert parsed is not None
    assert {name: value for name, value in parsed.items() if value is not None} == {
        name: value for name, value in values.items() if value is not None
    }


@pytest.mark.parametrize(
    ("pattern", "value", "key"),
    [
        ("x:{a}", "a:b%c{d}", "x:a%3Ab%25c%7Bd%7D"),
        ("x:{a}", "a b\n*é_[]", "x:a b\n*é_[]"),
        ("{a}é{b}", "é", "%C3%A9éb"),
        ("{a}2{b}", "2%", "%32%252b"),
        ("{a}_:{b}", "_", "__:b"),
        ("{a:int}-{b}", -5, "%2D5-b"),
    ],
)
def test_only_necessary_characters_are_escaped(pattern: str, value: object, key: str) -> None:
    assert Pattern(pattern).render({"a": value} | ({"b": "b"} if "{b}" in pattern else {})) == key


def test_a_missing_tail_is_read_as_none() -> None:
    assert Pattern("{key}[_{page}]").parse("ViewMode") == {"key": "ViewMode", "page": None}


@given(st.text(min_size=1))
@example("https://example.com/ü?a=1&b=2#c")
@example("-_.!~*'()")
def test_a_uri_is_written_as_encode_uri_component_writes_it(text: str) -> None:
    assert Pattern("{url:uri}").render({"url": text}) == quote(text, safe="-_.!~*'()")


@given(st.ip_addresses(v=6) | ZEROS)
def test_an_ipv6_address_is_written_compressed_with_its_colons_escaped(address: IPv6Address) -> None:
    written = Pattern("{ip:ip}").render({"ip": address}).replace("%3A", ":")
    assert IPv6Address(written) == address
    if address.ipv4_mapped is None:
        assert written == str(address)


def test_a_mapped_address_is_written_the_same_on_every_version_of_python() -> None:
    assert Pattern("{ip:ip}").render({"ip": "::ffff:203.0.113.7"}) == "%3A%3Affff%3Acb00%3A7107"


def test_the_scope_of_an_address_is_kept() -> None:
    pattern = Pattern("{ip:ip}")
    assert pattern.render({"ip": "FE80::1%eth0"}) == "fe80%3A%3A1%25eth0"
    assert pattern.parse("fe80%3A%3A1%25eth0") == {"ip": IPv6Address("fe80::1%eth0")}


def test_the_text_of_a_uuid_or_an_address_is_read_back_as_the_object() -> None:
    text = "3F2A9C1E-8B4D-4F6A-9E2B-7C5D1A0B8E4F"
    assert Pattern("{id:uuid}").render({"id": text}) == text.lower()
    assert Pattern("{id:uuid}").parse(text.lower()) == {"id": uuid.UUID(text)}
    assert Pattern("{ip:ip}").parse("203.0.113.7") == {"ip": ip_address("203.0.113.7")}


def test_a_text_of_an_enum_is_its_value() -> None:
    class Old(str, Enum):  # noqa: UP042 - there are many of these, and str() of them is something else
        RED = "red"

    class New(StrEnum):
        RED = "red"

    render = Pattern("x:{color}").renderer()
    assert [render(Old.RED), render(New.RED)] == ["x:red", "x:red"]
    assert type(Pattern("{color}").render({"color": Old.RED})) is str


# Bounds


LONG = "ü" * 40  # 80 bytes


def test_a_value_beyond_its_bound_is_hashed_and_never_cut() -> None:
    pattern = Pattern("x:{a<=64}")
    key = pattern.render({"a": LONG})
    assert key == "x:%~" + "vfm_5QZwmHnxnBCENsBOhqW1YYUtXArzowBxT1LtK08"
    assert pattern.parse(key) == {"a": Hashed(key[4:])}
    assert pattern.render({"a": Hashed(key[4:])}) == key


@pytest.mark.parametrize(
    ("value", "hashed"), [("a" * 64, False), ("a" * 65, True), ("ü" * 32, False), (":" * 22, True)]
)
def test_a_bound_counts_escaped_bytes(value: str, hashed: bool) -> None:
    assert Pattern("x:{a<=64}").render({"a": value}).startswith("x:%~") == hashed


def test_a_value_that_looks_hashed_is_escaped() -> None:
    assert Pattern("x:{a<=64}").render({"a": "%~" + "A" * 43}) == "x:%25~" + "A" * 43


def test_a_bound_that_no_value_can_pass_changes_nothing() -> None:
    assert Pattern("x:{day:date<=45}").max_bytes == 12
    assert Pattern("x:{day:date<=45}").render({"day": date(2026, 2, 23)}) == "x:2026-02-23"


def test_a_digest_may_have_the_character_that_separates() -> None:
    pattern = Pattern("{a<=45}_{b}")
    value = next(text for text in map(str, range(10**50, 10**51)) if "_" in pattern.render({"a": text, "b": "x"})[2:45])
    key = pattern.render({"a": value, "b": "x_y"})
    assert pattern.parse(key) == {"a": Hashed(key[2:45]), "b": "x_y"}


@pytest.mark.parametrize(
    ("pattern", "hashed", "sentence"),
    [
        ("x:{a}", Hashed("A" * 43), "x:{a}: a is never hashed here; pass the value itself"),
        (
            "x:{a<=64}",
            Hashed("A" * 42),
            "x:{a<=64}: a is Hashed with an invalid digest; a digest has 43 characters, SHA-256 in base64url",
        ),
    ],
)
def test_a_digest_is_accepted_only_if_valid(pattern: str, hashed: Hashed, sentence: str) -> None:
    with pytest.raises(BadKey) as raised:
        Pattern(pattern).render({"a": hashed})
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("receive:edge:index", 18),
        ("x:{a}", None),
        ("x:{a<=64}", 66),
        ("x:{n:int}", None),
        ("é{id:uuid}", 38),
        ("{d:date}-{id:uuid}", 14 + 1 + 36),
        ("{a<=64}[_{b<=45}]", 64 + 1 + 45),
        ("x:{ip:ip}", None),
    ],
)
def test_the_longest_key_is_known(pattern: str, most: int | None) -> None:
    assert Pattern(pattern).max_bytes == most


@pytest.mark.matrix
@given(st.data())
def test_no_key_is_longer_than_the_longest(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    tagged = Pattern(pattern.text, tag=pattern.names[0])
    key = tagged.render(data.draw(values_of(pattern)), tagged=True)
    assert tagged.max_bytes is None or len(key.encode()) <= tagged.max_bytes


# Calls


def test_values_are_given_by_position_or_by_name() -> None:
    render = Pattern("dashboard:summary:{user}:{team}").renderer()
    assert render("42", "3") == render("42", team="3") == render(team="3", user="42") == "dashboard:summary:42:3"
    assert Pattern("sess:{sid}").renderer()("abc") == Pattern("sess:{sid}").renderer()(sid="abc") == "sess:abc"
    assert Pattern("receive:edge:index").renderer()() == "receive:edge:index"
    field = Pattern("{key}[_{page}]").renderer()
    assert [field("a"), field("a", None), field("a", "b"), field(key="a", page="b")] == ["a", "a", "a_b", "a_b"]


@pytest.mark.parametrize(
    ("pattern", "args", "kwargs", "sentence"),
    [
        ("user:{uid}", (), {}, "user:{uid}: uid is missing; write (uid=...)"),
        ("x:{a}:{b}", ("1",), {}, "x:{a}:{b}: b is missing; write (a=..., b=...)"),
        ("{key}[_{page}]", (), {"page": "x"}, "{key}[_{page}]: key is missing; write (key=..., page=...)"),
        ("user:{uid}", (), {"udi": "x"}, "user:{uid}: there is no udi (did you mean uid?); write (uid=...)"),
        ("user:{uid}", (), {"zzz": "x"}, "user:{uid}: there is no zzz; write (uid=...)"),
        ("user:{uid}", ("1", "2"), {}, "user:{uid}: it takes at most 1, not 2; write (uid=...)"),
        ("x:{a}:{b}", ("1",), {"a": "1"}, "x:{a}:{b}: a was given twice; write (a=..., b=...)"),
        ("index", ("1",), {}, "index: it takes at most 0, not 1; write ()"),
    ],
)
def test_a_wrong_call_explains_the_arguments(
    pattern: str, args: tuple[str, ...], kwargs: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadKey) as raised:
        Pattern(pattern).renderer()(*args, **kwargs)
    assert str(raised.value) == sentence


def test_one_placeholder_is_rendered_as_in_a_key() -> None:
    pattern = Pattern("{key}[_{page}]")
    assert pattern.render_one("key", "User_Theme") == "User%5FTheme"
    assert pattern.render_one("page", "User_Theme") == "User_Theme"
    with pytest.raises(BadKey, match=r"there is no pgae \(did you mean page\?\)"):
        pattern.render_one("pgae", "x")


# Values that do not fit


DAY = datetime(2026, 2, 23, 10, 5)


@pytest.mark.parametrize(
    ("pattern", "value", "reason"),
    [
        ("x:{a}", 42, "a takes a str, not int; write {a:int} in the pattern, or pass str(a)"),
        ("x:{a}", True, "a takes a str, not bool"),
        ("x:{a}", None, "a takes a str, not None"),
        ("x:{a}", b"42", "a takes a str, not bytes; pass a.decode()"),
        ("x:{a}", date(2026, 2, 23), "a takes a str, not date; write {a:date} in the pattern, or pass str(a)"),
        ("x:{a}", "", "a is empty; a key needs at least one character there"),
        ("x:{a}", "\ud800", "a takes a str; the str given has a lone surrogate, which has no UTF-8 encoding"),
        ("x:{a:uri}", "\udfff", "a takes a str; the str given has a lone surrogate, which has no UTF-8 encoding"),
        ("x:{a:int}", "42", "a takes an int, not str; pass int(a)"),
        ("x:{a:int}", 1.5, "a takes an int, not the float 1.5"),
        ("x:{a:int}", True, "a takes an int; a bool was given; pass int(...) if you mean a number"),
        pytest.param(
            "x:{a:int}", 10**5000, "a takes an int; the int given has more digits than Python can write", id="huge int"
        ),
        ("x:{a:token}", "a b", "a takes a str of A-Z, a-z, 0-9, '_' and '-'; the str given has white space"),
        ("x:{a:token}", "a/b", "a takes a str of A-Z, a-z, 0-9, '_' and '-'; the str given has punctuation"),
        ("x:{a:token}", "a\0", "a takes a str of A-Z, a-z, 0-9, '_' and '-'; the str given has a control character"),
        ("x:{a:token}", "", "a is empty; a key needs at least one character there"),
        ("x:{a:alnum}", "é", "a takes a str of A-Z, a-z and 0-9; the str given has a character outside ASCII"),
        ("x:{a:hex}", "AB", "a takes a str of 0-9 and a-f; the str given has an upper-case letter"),
        ("x:{a:hex}", "xy", "a takes a str of 0-9 and a-f; the str given has a lower-case letter"),
        (
            "x:{a:slug}",
            "-a",
            "a takes a str of a-z, 0-9 and, not first, '-'; the str given begins with another character",
        ),
        (
            "x:{a:uuid}",
            "{3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f}",
            "a takes a UUID or its text; the str given is not 32 hex digits in five groups separated by '-'",
        ),
        ("x:{a:date}", 20260223, "a takes a datetime.date, not the int 20260223"),
        pytest.param("x:{a:date}", 10**5000, "a takes a datetime.date, not int", id="huge int for a date"),
        (
            "x:{a:date}",
            DAY,
            "a takes a datetime.date; a datetime was given; pass its .date(), in the intended time zone",
        ),
        (
            "x:{a:month}",
            DAY.date(),
            "a takes a datetime.date, the first of a month; 2026-02-23 was given; pass .replace(day=1) of it",
        ),
        (
            "x:{a:ip}",
            "localhost",
            "a takes an IPv4Address, an IPv6Address or its text; the str given is not an IPv4 or IPv6 address",
        ),
        (
            "x:{a:ip}",
            IPv4Interface("203.0.113.7/24"),
            "a takes an IPv4Address, an IPv6Address or its text; an interface was given; pass its .ip",
        ),
    ],
)
def test_an_unfit_value_is_refused_with_advice(pattern: str, value: object, reason: str) -> None:
    with pytest.raises(BadKey) as raised:
        Pattern(pattern).render({"a": value})
    assert str(raised.value) == f"{pattern}: {reason}"


@pytest.mark.parametrize("type_name", ["token", "alnum", "hex", "slug", "uuid", "ip", "int", "date"])
def test_a_secret_is_in_no_error(type_name: str) -> None:
    with pytest.raises(BadKey) as raised:
        Pattern(f"x:{{a:{type_name}}}").render({"a": "S3CRET word!"})
    shown = [raised.value]
    while shown[-1].__cause__ or (shown[-1].__context__ and not shown[-1].__suppress_context__):
        shown.append(shown[-1].__cause__ or shown[-1].__context__)  # type: ignore[arg-type]
    assert not [error for error in shown if "CRET" in str(error)]


# Declarations


@pytest.mark.parametrize(
    ("text", "finding", "reason"),
    [
        ("user:{uid", "bad-pattern", "the { at character 6 is not closed; write {uid}"),
        ("user:{uid:{x}", "bad-pattern", "the { at character 6 is not closed; write {uid}"),
        ("user:uid}", "bad-pattern", "the } at character 9 closes nothing; write { before the name"),
        ("user:{}", "bad-pattern", "{} at character 6 has no valid argument name; write {name}"),
        ("{user-id}", "bad-pattern", "{user-id} at character 1 has no valid argument name; write {user_id}"),
        ("{ id }", "bad-pattern", "{ id } at character 1 has no valid argument name; write {id}"),
        ("{2nd}", "bad-pattern", "{2nd} at character 1 has no valid argument name; write {n2nd}"),
        ("{from}", "bad-pattern", "{from} at character 1 has no valid argument name; write {from_}"),
        ("{a}:{a}", "bad-pattern", "{a} at character 5 is a duplicate; write {a2} or similar"),
        ("x:{a<64}", "bad-pattern", "{a<64} at character 3 has no valid bound in bytes; write {a<=64}"),
        ("x:{a:int<=}", "bad-pattern", "{a:int<=} at character 3 has no valid bound in bytes; write {a:int<=64}"),
        (
            "x:{a<=44}",
            "bad-pattern",
            "{a<=44} at character 3 has a bound shorter than the 45 bytes of a hashed value; write {a<=45} or more",
        ),
        (
            "{a}{b}",
            "ambiguous-pattern",
            "there is nothing between {a} and {b} at character 4, so keys are ambiguous; write {a}:{b} or similar",
        ),
        (
            "{a}[{b}]",
            "ambiguous-pattern",
            "there is nothing between {a} and {b} at character 5, so keys are ambiguous; write {a}:{b} or similar",
        ),
        (
            "{a}%{b}",
            "ambiguous-pattern",
            "the % between {a} and {b} at character 5 looks like an escape; write {a}:{b} or similar",
        ),
        ("x]", "bad-pattern", "the ] at character 2 closes nothing; leave it out"),
        ("x[_{a}", "bad-pattern", "the [ at character 2 is not closed; write ] at the end of the tail"),
        (
            "x[_{a}]y",
            "bad-pattern",
            "the tail that ends at character 7 is not at the end; move the rest before the [",
        ),
        (
            "x[_[{a}]",
            "bad-pattern",
            "the [ at character 4 is in the tail; leave it out, a pattern has at most one tail",
        ),
        (
            "x[_{a}:{b}]",
            "bad-pattern",
            "the tail at character 2 must be a literal and one placeholder, as in [_{page}]",
        ),
        (
            "x[_]",
            "bad-pattern",
            "the tail at character 2 must be a literal and one placeholder, as in [_{page}]",
        ),
        ("x[{a}]", "bad-pattern", "the tail at character 2 must start with a literal, as in [_{page}]"),
        ("[_{a}]", "bad-pattern", "there is nothing before the tail; write _{a}"),
        ("x:\ud800", "bad-pattern", "the lone surrogate at character 3 has no UTF-8 encoding; leave it out"),
    ],
)
def test_a_malformed_pattern_is_refused_with_advice(text: str, finding: str, reason: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        Pattern(text)
    quoted = text.replace("\ud800", "\\ud800")
    assert (str(raised.value), raised.value.finding) == (f'pattern "{quoted}": {reason}', finding)


@pytest.mark.parametrize(
    ("written", "advice"),
    [("integer", "did you mean int?"), ("str", "did you mean text?"), ("tokn", "did you mean token?")],
)
def test_an_unknown_type_is_refused_with_a_near_one(written: str, advice: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        Pattern(f"x:{{a:{written}}}")
    assert raised.value.finding == "bad-pattern"
    start = f'pattern "x:{{a:{written}}}": {{a:{written}}} at character 3: there is no type {written!r}; {advice}'
    assert str(raised.value).startswith(f"{start} The types are text, int, token, ")


def test_an_unknown_type_that_is_near_none_can_be_registered() -> None:
    with pytest.raises(BadDeclaration, match=r"there is no type 'qqqq'; register your own with placeholder\(\)"):
        Pattern("x:{a:qqqq}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a pattern is empty; write at least one character, such as 'user:{uid}'"),
        (b"x", "a pattern must be a str, such as 'user:{uid}', not bytes"),
    ],
)
def test_an_argument_that_is_not_a_pattern_is_refused(text: Any, sentence: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        Pattern(text)
    assert (str(raised.value), raised.value.finding) == (sentence, "bad-pattern")


# Tags


def test_the_value_of_a_tag_is_in_braces() -> None:
    pattern = Pattern("counter:{id:slug}:total", tag="id")
    assert pattern.render({"id": "example-a1b2c3d4"}, tagged=True) == "counter:{example-a1b2c3d4}:total"
    assert pattern.render({"id": "example-a1b2c3d4"}) == "counter:example-a1b2c3d4:total"
    assert pattern.parse("counter:{example-a1b2c3d4}:total", tagged=True) == {"id": "example-a1b2c3d4"}
    assert pattern.parse("counter:example-a1b2c3d4:total", tagged=True) is None
    assert pattern.glob(tagged=True) == "counter:{*}:total"


def test_doubled_braces_are_literal_ones() -> None:
    pattern = Pattern("{{user:{uid:int}}}:cart[_{page}]")
    assert pattern.render({"uid": 7}) == "{user:7}:cart"
    assert pattern.parse("{user:7}:cart_2") == {"uid": 7, "page": "2"}
    assert pattern.parse("user:7:cart") is None
    assert pattern.display == "{{user:{uid}}}:cart[_{page}]"
    assert pattern.prefix == "{user:"
    assert Pattern("{{{uid}}}:x").overlap(Pattern("{a}:x")) is None


def test_without_a_tag_a_tagged_key_is_the_key() -> None:
    pattern = Pattern("receive:edge:index")
    assert pattern.render({}, tagged=True) == "receive:edge:index"
    assert pattern.parse("receive:edge:index", tagged=True) == {}


@pytest.mark.parametrize(
    ("text", "tag", "reason"),
    [
        ("x:{a}:{b}", "c", "the tag 'c' is not one of its placeholders; write a or b"),
        ("x", "c", "the tag 'c' is not one of its placeholders; leave it out"),
        ("{a}[_{b}]", "b", "the tag 'b' is in the tail, which may be missing; name one before it"),
        (
            "{{x}}:{a}",
            "a",
            "the tag 'a' would be a second hash tag beside the literal braces; leave it out",
        ),
    ],
)
def test_a_tag_that_a_key_may_not_have_is_refused(text: str, tag: str, reason: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        Pattern(text, tag=tag)
    assert (str(raised.value), raised.value.finding) == (f'pattern "{text}": {reason}', "bad-pattern")


# Globs, examples and what documents show


@pytest.mark.parametrize(
    ("pattern", "values", "glob"),
    [
        ("user:{uid}:sessions", {}, "user:*:sessions"),
        ("user:{uid}:sessions", {"uid": "a*"}, r"user:a\*:sessions"),
        ("x*:{a}:{b}", {"b": "1"}, r"x\*:*:1"),
        ("{key}[_{page}]", {}, "*"),
        ("{key}s[_{page}]", {}, "*s*"),
        ("{key}[_{page}]", {"key": "User_Theme"}, "User%5FTheme*"),
        ("{key}[_{page}]", {"key": "a", "page": None}, "a"),
        ("{key}[_{page}]", {"page": "b"}, "*_b"),
        ("{key}*[_{page}]", {"key": "a"}, r"a\**"),
    ],
)
def test_a_glob_matches_any_value_that_is_not_given(pattern: str, values: dict[str, Any], glob: str) -> None:
    assert Pattern(pattern).glob(values) == glob


@given(st.data())
def test_a_glob_matches_every_key_with_its_values(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    values = data.draw(values_of(pattern))
    given_names = data.draw(st.sets(st.sampled_from(pattern.names)))
    glob = pattern.glob({name: values[name] for name in given_names})
    assert compile_glob(glob.encode()).fullmatch(pattern.render(values).encode())


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"udi": "x"}, "there is no udi (did you mean uid?); write (uid=...)"),
        ({"uid": None}, "uid takes a str, not None"),
    ],
)
def test_a_glob_of_wrong_values_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadKey) as raised:
        Pattern("user:{uid}").glob(values)
    assert str(raised.value) == f"user:{{uid}}: {reason}"


@given(patterns())
def test_an_example_is_a_key_of_the_pattern(pattern: Pattern) -> None:
    assert pattern.parse(pattern.example()) is not None


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("user:{uid:int}:sessions", "user:{uid}:sessions"),
        ("{key<=64}[_{page:token<=45}]", "{key}[_{page}]"),
        ("receive:edge:index", "receive:edge:index"),
    ],
)
def test_documents_show_neither_types_nor_bounds(text: str, display: str) -> None:
    assert Pattern(text).display == display
    assert Pattern(text).text == text


def test_a_pattern_exposes_its_parts() -> None:
    pattern = Pattern("counter:{id:slug}:daily:{day:date}", tag="id")
    assert pattern.names == ("id", "day")
    assert dict(pattern.types) == {"id": TYPES["slug"], "day": TYPES["date"]}
    assert repr(pattern) == "Pattern('counter:{id:slug}:daily:{day:date}', tag='id')"
    assert repr(Pattern("x")) == "Pattern('x')"


# Types of one's own


class Suit(Enum):
    HEARTS = "h"
    SPADES = "s"


@pytest.fixture
def own_types() -> Iterator[None]:
    """Unregister the types of a test after it."""
    before = dict(TYPES)
    yield
    for name in set(TYPES) - set(before):
        del TYPES[name]


def register_suit(characters: str | None = "hs") -> PlaceholderType:
    return placeholder("suit", Suit, render=lambda suit: suit.value, parse=Suit, characters=characters, doc="a Suit")


@pytest.mark.usefixtures("own_types")
def test_a_custom_type_renders_and_parses() -> None:
    assert register_suit() is TYPES["suit"]
    pattern = Pattern("cards:{suit:suit}")
    assert pattern.render({"suit": Suit.HEARTS}) == "cards:h"
    assert pattern.parse("cards:s") == {"suit": Suit.SPADES}
    assert pattern.parse("cards:x") is None
    assert pattern.example() == "cards:h"


@pytest.mark.usefixtures("own_types")
def test_a_type_may_be_registered_again_as_when_its_module_is_reloaded() -> None:
    register_suit()
    assert register_suit() is TYPES["suit"]


@pytest.mark.usefixtures("own_types")
def test_another_type_under_the_same_name_is_refused() -> None:
    register_suit()
    with pytest.raises(BadDeclaration) as raised:
        register_suit(characters=None)
    assert raised.value.finding == "bad-placeholder"
    assert str(raised.value) == "placeholder('suit'): 'suit' is already the name of another type; choose another name"


def test_a_built_in_type_is_not_replaced() -> None:
    with pytest.raises(BadDeclaration, match="'text' is already the name of another type"):
        placeholder("text", str, render=str, parse=str)
    assert Pattern("{a}").render({"a": "b"}) == "b"


@pytest.mark.parametrize(
    ("name", "characters", "reason"),
    [
        ("no-name", None, "is not a valid type name; write one word of letters, digits and '_'"),
        ("empty", "", "has no characters; leave characters= out to allow all of them"),
    ],
)
def test_a_type_that_could_not_be_used_is_refused(name: str, characters: str | None, reason: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        placeholder(name, str, render=str, parse=str, characters=characters)
    assert str(raised.value) == f"placeholder({name!r}): {name!r} {reason}"


def refuse(_: object) -> Any:
    raise LookupError


@pytest.mark.usefixtures("own_types")
@pytest.mark.parametrize(
    ("render", "parse", "reason"),
    [
        (str.lower, str, "its parse does not return the value that was rendered"),
        (str, refuse, "its parse raised LookupError for what its render returned"),
        (refuse, str, "its render raised LookupError"),
        (len, str, "its render returned int, not str"),
        (str.upper, str.lower, "its render returned a text with an upper-case letter"),
    ],
)
def test_a_custom_type_must_round_trip(render: Any, parse: Any, reason: str) -> None:
    value = "Ab" if render is str.lower else "ab"
    placeholder("own", str, render=render, parse=parse, characters="ab", doc="a's and b's")
    with pytest.raises(BadKey) as raised:
        Pattern("x:{a:own}").render({"a": value})
    assert str(raised.value) == f"x:{{a:own}}: a takes a's and b's; {reason}"


@pytest.mark.usefixtures("own_types")
def test_a_custom_type_with_an_empty_text_is_refused() -> None:
    placeholder("nothing", int, render=lambda _: "", parse=lambda _: 1)
    with pytest.raises(BadKey) as raised:
        Pattern("x:{a:nothing}").render({"a": 1})
    assert str(raised.value) == "x:{a:nothing}: a is empty: the type nothing returned an empty text"


@pytest.mark.usefixtures("own_types")
def test_whatever_a_type_of_ones_own_does_with_a_foreign_key_it_is_not_read() -> None:
    placeholder("picky", str, render=str, parse=lambda text: text if text == "a" else refuse(text))
    assert Pattern("x:{a:picky}").parse("x:a") == {"a": "a"}
    assert Pattern("x:{a:picky}").parse("x:b") is None


def test_the_digest_is_sha_256_in_base64url() -> None:
    key = Pattern("{a<=45}").render({"a": "x" * 46})
    assert urlsafe_b64decode(key[2:] + "=") == sha256(b"x" * 46).digest()
