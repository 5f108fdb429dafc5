"""Values are stored as the key documents show, byte for byte; only data that could have been written is read."""

import contextlib
import dataclasses
import enum
import json
import math
import traceback
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, assert_type
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from keystead.errors import BadDeclaration, BadValue, Unreadable
from keystead.schema.codec import Codec, OmittedIfNone, Versions, codec_for, without_none
from keystead.schema.seal import Sealed
from keystead.schema.times import EpochMs, IsoTime

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SECRET = "hunter2-the-secret"


class DiscordSession(BaseModel):
    uid: str
    name: str
    avatar: str | None = None
    access_token: str
    refresh_token: str
    scope: str
    token_type: str
    access_expires_at: EpochMs
    created_at: EpochMs
    last_seen_at: EpochMs
    ver: int = 1


class EdgeMeta(BaseModel):
    id: str
    blob_name: str
    pathname: str
    expires_at: IsoTime
    short_token: OmittedIfNone[str] = None


class SessionData(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    access_token: str
    refresh_token: str
    expires_at: int
    user_id: str


class CounterMeta(BaseModel):
    service: Literal["counter"] = "counter"
    id: str
    url: str
    created: IsoTime
    lastVisit: IsoTime | None = None  # noqa: N815 (as the document names it)
    totalCount: int  # noqa: N815
    owner: str | None = None


class Plan(enum.Enum):
    FREE = "Free"
    PRO = "Pro"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Pair:
    left: str
    right: Point


class Options(TypedDict):
    title: str
    size: NotRequired[int]


class Place(NamedTuple):
    row: int
    column: int


def unread(codec: Codec[Any], data: bytes, name: str = "") -> str:
    """The message of a read error. Neither it nor its cause contains the secret."""
    with pytest.raises(Unreadable) as caught:
        codec.decode(data, "some:key", name=name)
    assert caught.value.raw == data
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert str(caught.value).startswith("some:key: ")
    return str(caught.value)


def unwritten(codec: Codec[Any], value: Any, name: str = "") -> str:
    """The message of a write error. Neither it nor its cause contains the secret."""
    with pytest.raises(BadValue) as caught:
        codec.encode(value, "some:key", name=name)
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert str(caught.value).startswith("some:key: ")
    return str(caught.value)


def refused(type_: Any, finding: str = "bad-value-type", versions: Versions | None = None) -> str:
    with pytest.raises(BadDeclaration) as caught:
        codec_for(type_, versions=versions, where="Keys.family")
    assert caught.value.finding == finding
    assert str(caught.value).startswith("Keys.family: ")
    return str(caught.value)


# The documents' own examples.


def test_the_login_session_is_stored_as_its_document_shows_it() -> None:
    session = DiscordSession(
        uid="DiscordのユーザーID",
        name="ユーザー名",
        avatar="アバターID",
        access_token="Discordアクセストークン",
        refresh_token="Discordリフレッシュトークン",
        scope="付与スコープ",
        token_type="Bearer",
        access_expires_at=datetime.fromtimestamp(1700000000, UTC),
        created_at=datetime.fromtimestamp(1690000000, UTC),
        last_seen_at=datetime.fromtimestamp(1690000000, UTC),
    )
    document = """{
  "uid": "DiscordのユーザーID",
  "name": "ユーザー名",
  "avatar": "アバターID",
  "access_token": "Discordアクセストークン",
  "refresh_token": "Discordリフレッシュトークン",
  "scope": "付与スコープ",
  "token_type": "Bearer",
  "access_expires_at": 1700000000000,
  "created_at": 1690000000000,
  "last_seen_at": 1690000000000,
  "ver": 1
}"""
    compact = document.replace("\n", "").replace("  ", "").replace('": ', '":').encode()
    codec = codec_for(DiscordSession)
    assert codec.encode(session, "sess:1") == compact
    assert codec.decode(document.encode(), "sess:1") == session


EDGE = (
    '{"id":"ABC123DEFG","blob_name":"user_prize/<ownerDiscordId>/<receiverDir>/<fileName>",'
    '"pathname":"user_prize/<ownerDiscordId>/<receiverDir>/<fileName>","expires_at":"2024-12-31T15:00:00.000Z"'
)


@pytest.mark.parametrize(
    ("short_token", "stored"), [("s1AbCdEfGh", EDGE + ',"short_token":"s1AbCdEfGh"}'), (None, EDGE + "}")]
)
def test_a_share_link_has_its_short_token_only_where_one_was_issued(short_token: str | None, stored: str) -> None:
    path = "user_prize/<ownerDiscordId>/<receiverDir>/<fileName>"
    meta = EdgeMeta(
        id="ABC123DEFG",
        blob_name=path,
        pathname=path,
        expires_at=datetime(2024, 12, 31, 15, tzinfo=UTC),
        short_token=short_token,
    )
    codec = codec_for(EdgeMeta)
    assert codec.encode(meta, "k") == stored.encode()
    assert codec.decode(stored.encode(), "k") == meta


def test_the_session_data_of_a_worker_is_stored_under_its_own_names() -> None:
    session = SessionData(access_token="at", refresh_token="rt", expires_at=1768694400000, user_id="123")
    stored = b'{"accessToken":"at","refreshToken":"rt","expiresAt":1768694400000,"userId":"123"}'
    codec = codec_for(SessionData)
    assert codec.encode(session, "k") == stored
    assert codec.decode(stored, "k") == session


@pytest.mark.parametrize("text", ["김개발", "dev@company.com", "DEVELOPER", "3", "상태변경", "1"])
def test_the_fields_of_a_session_hash_are_stored_as_their_own_text(text: str) -> None:
    codec = codec_for(str)
    assert codec.encode(text, "session:user:42", name="name") == text.encode()
    assert codec.decode(text.encode(), "session:user:42", name="name") == text


def test_a_notification_is_published_as_its_document_shows_it() -> None:
    notification: dict[str, JsonValue] = {
        "notificationId": 501,
        "type": "상태변경",
        "title": "WR-001 상태가 변경되었습니다",
    }
    stored = '{"notificationId":501,"type":"상태변경","title":"WR-001 상태가 변경되었습니다"}'.encode()
    assert codec_for(dict[str, JsonValue]).encode(notification, "notifications:user:42") == stored


def test_the_metadata_of_a_counter_writes_null_where_nothing_is_known() -> None:
    meta = CounterMeta(
        id="example-a1b2c3d4",
        url="https://example.com",
        created=datetime(2025, 8, 1, 12, 30, 45, 123000, tzinfo=UTC),
        totalCount=0,
    )
    stored = (
        b'{"service":"counter","id":"example-a1b2c3d4","url":"https://example.com","created":"2025-08-01T12:30:45.123Z",'
        b'"lastVisit":null,"totalCount":0,"owner":null}'
    )
    codec = codec_for(CounterMeta)
    assert codec.encode(meta, "counter:1") == stored
    assert codec.decode(stored, "counter:1") == meta


def test_the_state_of_a_like_is_true_or_false() -> None:
    codec = codec_for(bool)
    assert (codec.encode(True, "k"), codec.encode(False, "k")) == (b"true", b"false")
    assert (codec.decode(b"true", "k"), codec.decode(b"false", "k")) == (True, False)


# Round trips.


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        (str, "123", b"123"),
        (str, "", b""),
        (bytes, b"\xff\x00", b"\xff\x00"),
        (int, -42, b"-42"),
        (int, 2**100, b"1267650600228229401496703205376"),
        (float, 0.5, b"0.5"),
        (date, date(2026, 2, 23), b"2026-02-23"),
        (datetime, datetime(2026, 2, 23, 10, 5, tzinfo=UTC), b"2026-02-23T10:05:00Z"),
        (UUID, UUID("673debd1-0000-4000-8000-000000000000"), b"673debd1-0000-4000-8000-000000000000"),
        (Plan, Plan.PRO, b"Pro"),
        (Literal["Free", "Pro"], "Pro", b"Pro"),
        (Decimal, Decimal("1.50"), b"1.50"),
        (Annotated[str, Field(max_length=5)], "abc", b"abc"),
        (Annotated[int, Field(ge=0)], 7, b"7"),
        (Annotated[float, Field(ge=0)], 7.0, b"7"),
        (Literal[True], True, b"true"),
        (NewType("Uid", str), "42", b"42"),
        (list[str], ["a", "b"], b'["a","b"]'),
        (set[int], {1}, b"[1]"),
        (tuple[int, str], (1, "a"), b'[1,"a"]'),
        (dict[int, bool], {1: True}, b'{"1":true}'),
        (dict[str, Any], {"a": [1, None, "x", 0.5, {"b": False}]}, b'{"a":[1,null,"x",0.5,{"b":false}]}'),
        (Pair, Pair("l", Point(x=1)), b'{"left":"l","right":{"x":1,"y":0}}'),
        (Options, {"title": "t"}, b'{"title":"t"}'),
        (Place, Place(1, 2), b"[1,2]"),
        (list[Point], [Point(x=1)], b'[{"x":1,"y":0}]'),
        (Point | list[int], Point(x=1), b'{"x":1,"y":0}'),
        (RootModel[list[int]], RootModel[list[int]]([1]), b"[1]"),
    ],
    ids=str,
)
def test_each_type_is_stored_in_its_plainest_form_and_read_back(type_: Any, value: Any, stored: bytes) -> None:
    codec = codec_for(type_)
    assert codec.encode(value, "k") == stored
    assert codec.decode(stored, "k") == value


@given(TEXT)
def test_any_text_round_trips(text: str) -> None:
    codec = codec_for(str)
    assert codec.decode(codec.encode(text, "k"), "k") == text


@given(st.binary())
def test_any_bytes_round_trip(data: bytes) -> None:
    codec = codec_for(bytes)
    assert codec.decode(codec.encode(data, "k"), "k") == data


@given(st.integers())
def test_any_integer_round_trips(number: int) -> None:
    codec = codec_for(int)
    assert codec.decode(codec.encode(number, "k"), "k") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_float_round_trips(number: float) -> None:
    codec = codec_for(float)
    assert codec.decode(codec.encode(number, "k"), "k") == number


class Everything(BaseModel):
    text: str
    number: int
    ratio: float
    flag: bool
    plan: Plan
    day: date
    id: UUID
    maybe: str | None
    omitted: OmittedIfNone[int] = None
    texts: list[str]
    counts: dict[str, int]
    nested: list[Point]


@given(
    st.builds(
        Everything,
        text=TEXT,
        number=st.integers(),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        maybe=st.none() | TEXT,
        omitted=st.none() | st.integers(),
        texts=st.lists(TEXT),
        counts=st.dictionaries(TEXT, st.integers()),
    )
)
def test_any_model_round_trips(value: Everything) -> None:
    codec = codec_for(Everything)
    assert codec.decode(codec.encode(value, "k"), "k") == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
    )
)
def test_json_is_compact_and_leaves_other_alphabets_as_they_are(tree: Any) -> None:
    written = codec_for(dict[str, JsonValue]).encode({"tree": tree}, "k")
    assert written == json.dumps({"tree": tree}, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (2.0**60, "1152921504606847000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-5, "0.00001"),
        (1.5e-6, "0.0000015"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(number: float, text: str) -> None:
    assert codec_for(float).encode(number, "k") == text.encode()
    assert codec_for(list[float]).encode([number, number], "k") == f"[{text},{text}]".encode()
    assert codec_for(dict[str, Any]).encode({"a": number}, "k") == f'{{"a":{text}}}'.encode()


def test_numbers_of_undeclared_types_are_written_so_too() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        name: str

    class Serialized(BaseModel):
        size: int

        @field_serializer("size")
        def halves(self, size: int):  # type: ignore[no-untyped-def]  # it does not say what it returns
            return float(size)

    assert codec_for(Open).encode(Open.model_validate({"name": "n", "more": 1.0}), "k") == b'{"name":"n","more":1}'
    assert codec_for(Serialized).encode(Serialized(size=1), "k") == b'{"size":1}'


def test_a_value_that_its_model_could_not_read_back_is_not_written() -> None:
    class Order(BaseModel):
        count: Annotated[int, Field(ge=0)]
        state: Literal["open", "paid"] = "open"

    codec = codec_for(Order)
    assert codec.encode(Order(count=1), "k") == b'{"count":1,"state":"open"}'
    for wrong in ({"count": -1}, {"state": "lost"}):
        with pytest.raises(BadValue, match="could not be read back"):
            codec.encode(Order(count=1).model_copy(update=wrong), "k")


def test_a_text_that_looks_like_a_number_stays_as_it_is_beside_one() -> None:
    assert codec_for(dict[str, Any]).encode({"1.0": '",1.0,\\"', "a": 1.0}, "k") == rb'{"1.0":"\",1.0,\\\"","a":1}'


def test_a_computed_field_is_not_stored() -> None:
    class Square(BaseModel):
        model_config = ConfigDict(extra="forbid")
        side: int

        @computed_field
        def area(self) -> int:
            return self.side**2

    codec = codec_for(Square)
    assert codec.encode(Square(side=3), "k") == b'{"side":3}'
    assert "area" not in codec.json_schema()["properties"]


def test_a_type_checker_knows_the_type_of_a_codec() -> None:
    assert_type(codec_for(Point).decode(b'{"x":1}', "k"), Point)
    assert_type(codec_for(list[str]), Codec[list[str]])


# Writing: unfit values are refused; the message names the key and the field but not the value.


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (str, 1),
        (str, SECRET.encode()),
        (str, None),
        (bytes, SECRET),
        (bytes, bytearray(b"x")),
        (int, SECRET),
        (int, True),
        (int, 1.0),
        (float, True),
        (float, SECRET),
        (bool, 1),
        (bool, "true"),
        (Plan, SECRET),
        (Plan, "Pro"),
        (Literal["Free"], SECRET),
        (UUID, SECRET),
        (datetime, "2026-02-23T10:05:00Z"),
        (Annotated[int, Field(ge=0)], -1),
        (Annotated[int, Field(ge=0)], True),
        (Annotated[str, Field(max_length=2)], SECRET),
        (Point, {"x": 1, "y": SECRET}),
        (Point, Pair(SECRET, Point(x=1))),
        (list[str], [1]),
        (list[str], SECRET),
        (list[str], (SECRET,)),
        (list[Point], [{"x": 1}]),
        (dict[str, int], {SECRET: SECRET}),
        (Options, {"size": 1}),
        (Options, {"title": SECRET, "size": SECRET}),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_not_written(type_: Any, value: Any) -> None:
    unwritten(codec_for(type_), value)


def test_the_sentence_names_the_field_of_a_hash() -> None:
    assert unwritten(codec_for(int), "1", name="teamId") == "some:key: field teamId must be int, not str"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uid", 1),
        ("name", "\ud800"),
        ("ver", SECRET),
        ("created_at", SECRET),
        ("avatar", [SECRET]),
        ("created_at", None),
    ],
)
def test_a_field_that_was_set_wrongly_after_validation_is_named(field: str, value: Any) -> None:
    session = DiscordSession.model_construct(
        uid="1",
        name="n",
        access_token=SECRET,
        refresh_token=SECRET,
        scope="s",
        token_type="Bearer",
        access_expires_at=datetime.now(UTC),
        created_at=datetime.now(UTC),
        last_seen_at=datetime.now(UTC),
    )
    codec = codec_for(DiscordSession)
    codec.encode(session, "some:key")
    setattr(session, field, value)
    assert f" in {field} " in unwritten(codec, session)


def test_a_field_that_a_model_was_built_without_is_named() -> None:
    assert "has no x" in unwritten(codec_for(Point), Point.model_construct(y=1))  # type: ignore[call-arg]  # what the test is about


def test_a_model_inside_a_model_is_looked_at_too() -> None:
    pair = Pair("l", Point.model_construct(x=SECRET))  # type: ignore[arg-type]  # what the test is about
    assert "right" in unwritten(codec_for(Pair), pair)


def test_half_of_a_surrogate_pair_is_not_written() -> None:
    unwritten(codec_for(str), "\ud800")
    unwritten(codec_for(list[str]), ["\ud800"])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_not_written(number: float) -> None:
    class Ratio(BaseModel):
        ratio: float
        other: str | None = None

    unwritten(codec_for(float), number)
    unwritten(codec_for(Annotated[float, Field()]), number)
    unwritten(codec_for(list[float]), [0.5, number])
    unwritten(codec_for(dict[str, Any]), {"a": {"b": [number]}})
    assert "ratio" in unwritten(codec_for(Ratio), Ratio(ratio=number))
    codec_for(Ratio).encode(Ratio(ratio=0.5), "k")


def test_a_serializer_that_fails_is_not_quoted() -> None:
    class Failing(BaseModel):
        value: str

        @field_serializer("value")
        def fail(self, value: str) -> str:
            raise RuntimeError(value)

    assert "value" in unwritten(codec_for(Failing), Failing(value=SECRET))


def test_an_integer_that_python_will_not_write_is_a_bad_value() -> None:
    unwritten(codec_for(int), 10**5000)


# Reading: strict, typed, and silent about the value.


@pytest.mark.parametrize(
    "data", [b" 1", b"1 ", b"01", b"1.0", b"+1", b"-0", b"1_000", b"", b"1\n", b"0x1", b"true", "٣".encode()]
)
@pytest.mark.parametrize("type_", [int, Annotated[int, Field(ge=-10)], Literal[1]])
def test_only_plain_digits_are_read_as_an_integer(type_: Any, data: bytes) -> None:
    unread(codec_for(type_), data)


@pytest.mark.parametrize(
    "data", [b"", b" 1", b".5", b"1.", b"NaN", b"Infinity", b"1e999", b"01.5", b"1_0.0", b"true", b'"1"']
)
@pytest.mark.parametrize("type_", [float, Annotated[float, Field(ge=-10, allow_inf_nan=False)]])
def test_only_a_json_number_is_read_as_a_float(type_: Any, data: bytes) -> None:
    unread(codec_for(type_), data)


@pytest.mark.parametrize("data", [b"True", b"1", b"0", b"", b"true ", b"yes", b'"true"'])
@pytest.mark.parametrize("type_", [bool, Literal[True, False]])
def test_only_true_and_false_are_read_as_a_boolean(type_: Any, data: bytes) -> None:
    unread(codec_for(type_), data)


@pytest.mark.parametrize("type_", [str, Literal["a"], datetime, Annotated[str, Field(max_length=5)]])
def test_bytes_that_are_not_utf_8_are_not_read_as_text(type_: Any) -> None:
    assert "UTF-8" in unread(codec_for(type_), b"\xff\xfe")


@pytest.mark.parametrize("text", ["123", "1.0", "true", "null", '"quoted"', "{}", " spaces "])
def test_a_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert codec_for(str).decode(text.encode(), "k") == text


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Plan, b"Ultimate"),
        (Plan, b'"Pro"'),
        (Literal["Free", "Pro"], b"pro"),
        (UUID, b"hunter2-the-secret"),
        (date, b"2026-02-30"),
        (datetime, b"yesterday"),
        (Point, b""),
        (Point, b"{"),
        (Point, b"\xff"),
        (Point, b"null"),
        (Point, b"[]"),
        (Point, b'{"x":"1"}'),
        (Point, b'{"x":1.0}'),
        (Point, b'{"x":true}'),
        (Point, b'{"y":1}'),
        (list[str], b"[1]"),
        (list[str], b'{"0":"a"}'),
        (list[float], b"[NaN]"),
        (list[float], b"[Infinity]"),
        (dict[str, Any], b'{"a":NaN}'),
        (tuple[int, str], b"[1]"),
        (dict[str, int], b'{"hunter2-the-secret":"hunter2-the-secret"}'),
    ],
    ids=str,
)
def test_data_that_encode_never_writes_is_not_read(type_: Any, data: bytes) -> None:
    unread(codec_for(type_), data)


def test_the_sentence_names_the_fields_and_the_reasons() -> None:
    sentence = unread(codec_for(list[Point]), f'[{{"x":"{SECRET}"}},{{"y":1}}]'.encode())
    assert "0.x: Input should be a valid integer" in sentence
    assert "1.x: Field required" in sentence


def test_the_sentence_names_the_field_of_a_hash_that_cannot_be_read() -> None:
    assert unread(codec_for(int), b"x", name="teamId") == "some:key: field teamId is not an integer in plain digits"


def test_the_message_does_not_contain_data() -> None:
    assert "*: Input should be a valid integer" in unread(codec_for(dict[str, int]), f'{{"{SECRET}":"x"}}'.encode())


def test_validators_that_quote_the_value_are_not_quoted() -> None:
    class Quoting(BaseModel):
        first: str
        second: str
        third: str

        @field_validator("first")
        @classmethod
        def fail(cls, value: str) -> str:
            raise ValueError(value)

        @field_validator("second")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise PydanticCustomError("mine", "{value} is bad", {"value": value})

        @field_validator("third")
        @classmethod
        def doubt(cls, value: str) -> str:
            raise AssertionError(value)

    data = json.dumps({"first": SECRET, "second": SECRET, "third": SECRET}).encode()
    assert unread(codec_for(Quoting), data).count("was refused by its own validator") == 3


def test_a_validator_that_crashes_is_unreadable_and_not_a_crash() -> None:
    class Crashing(BaseModel):
        value: str

        @model_validator(mode="after")
        def crash(self) -> "Crashing":
            raise ZeroDivisionError(self.value)

    assert "ZeroDivisionError" in unread(codec_for(Crashing), json.dumps({"value": SECRET}).encode())


def test_a_tag_that_names_no_choice_is_not_quoted() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    codec = codec_for(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert codec.decode(b'{"kind":"dog"}', "k") == Dog(kind="dog")
    unread(codec, f'{{"kind":"{SECRET}"}}'.encode())


def test_unknown_json_keys_are_left_to_the_model() -> None:
    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid")
        x: int

    assert codec_for(Point).decode(b'{"x":1,"z":2}', "k") == Point(x=1)
    unread(codec_for(Closed), f'{{"x":1,"{SECRET}":2}}'.encode())


def test_json_that_is_nested_too_deeply_is_unreadable_and_not_a_crash() -> None:
    unread(codec_for(dict[str, Any]), b'{"a":' + b"[" * 100_000)


@given(st.binary())
def test_no_bytes_crash_the_reading(data: bytes) -> None:
    for codec in CODECS:
        with contextlib.suppress(Unreadable):
            codec.decode(data, "k")


CODECS = [codec_for(type_) for type_ in (str, int, float, bool, datetime, Plan, Point, Options, list[float])]


# Operators: a picture, a schema, a shape.


@pytest.mark.parametrize(
    ("type_", "data", "picture"),
    [
        (str, b"123", "123"),
        (int, b"123", 123),
        (float, b"0.5", 0.5),
        (bool, b"true", True),
        (bytes, b"text", "text"),
        (bytes, b"\xff", {"base64": "/w=="}),
        (Plan, b"Pro", "Pro"),
        (Literal[1, 2], b"2", 2),
        (datetime, b"2026-02-23T10:05:00Z", "2026-02-23T10:05:00Z"),
        (Point, b'{"x":1,"later":null}', {"x": 1, "later": None}),
        (int, b"x", {"unreadable": "the value is not an integer in plain digits"}),
        (Point, b'{"y":1}', {"unreadable": "the value is not a valid Point: x: Field required"}),
    ],
    ids=str,
)
def test_shown_is_the_stored_value_or_why_it_is_unreadable(type_: Any, data: bytes, picture: Any) -> None:
    assert codec_for(type_).shown(data, "k") == picture


@pytest.mark.parametrize(
    ("type_", "shape"),
    [
        (str, "string"),
        (bytes, "bytes"),
        (int, "integer"),
        (float, "number"),
        (bool, '"true" | "false"'),
        (Plan, '"Free" | "Pro"'),
        (Literal["true", "false"], '"true" | "false"'),
        (UUID, "string (uuid)"),
        (EpochMs, "integer (epoch-ms)"),
        (EdgeMeta, "JSON { id, blob_name, pathname, expires_at, short_token? }"),
        (CounterMeta, "JSON { service, id, url, created, lastVisit | null, totalCount, owner | null }"),
        (SessionData, "JSON { accessToken, refreshToken, expiresAt, userId }"),
        (Options, "JSON { title, size? }"),
        (Pair, "JSON { left, right { x, y } }"),
        (list[Point], "JSON [{ x, y }]"),
        (list[str], "JSON [string]"),
        (tuple[int, str], "JSON [integer, string]"),
        (dict[str, int], "JSON { *: integer }"),
        (dict[str, Any], "JSON { * }"),
    ],
    ids=str,
)
def test_the_shape_is_described_in_a_few_words(type_: Any, shape: str) -> None:
    assert codec_for(type_).describe() == shape


def test_a_shape_is_nested_one_level_deep() -> None:
    class Leaf(BaseModel):
        deep: Point

    class Tree(BaseModel):
        leaf: Leaf

    assert codec_for(Tree).describe() == "JSON { leaf { deep } }"


def test_a_model_that_holds_itself_has_a_shape() -> None:
    class Reply(BaseModel):
        text: str
        replies: "list[Reply]" = []

    Reply.model_rebuild(_types_namespace={"Reply": Reply})
    assert codec_for(Reply).describe() == "JSON { text, replies [{ text, replies }] }"


def test_the_json_schema_requires_fields_that_are_always_written() -> None:
    schema = codec_for(EdgeMeta).json_schema()
    assert schema["required"] == ["id", "blob_name", "pathname", "expires_at"]
    assert schema["properties"]["short_token"]["type"] == "string"
    assert codec_for(CounterMeta).json_schema()["required"] == list(CounterMeta.model_fields)


def test_a_codec_knows_the_fields_of_its_model() -> None:
    assert codec_for(SessionData).field_names == {"access_token", "refresh_token", "expires_at", "user_id"}
    assert codec_for(str).field_names == codec_for(list[Point]).field_names == frozenset()


# Declarations that could not be stored and read back.


class Plain:
    pass


@pytest.mark.parametrize(
    ("type_", "advice"),
    [
        (str | None, "leave out None"),
        (Point | None, "leave out None"),
        (None, "leave out None"),
        (Any, "a Pydantic model"),
        (object, "a Pydantic model"),
        (JsonValue, "a Pydantic model"),
        (Plain, "a Pydantic model"),
        (list[Plain], "a Pydantic model"),
        (type, "a Pydantic model"),
        (5, "a Pydantic model"),
        ("Nowhere", "a Pydantic model"),
        (str | int, "a field of a model"),
        (str | Point, "a field of a model"),
        (Literal["a", 1], "a field of a model"),
        (SecretStr, "Sealed[str]"),
        (Annotated[bytes, Field(max_length=5)], "write bytes"),
    ],
    ids=str,
)
def test_an_unstorable_type_is_refused_with_advice(type_: Any, advice: str) -> None:
    assert advice in refused(type_)


def test_a_secret_of_pydantic_inside_a_model_is_refused() -> None:
    class Login(BaseModel):
        password: SecretStr

    assert "Sealed[str]" in refused(Login)


@pytest.mark.parametrize(
    "field",
    [
        Field(serialization_alias="other"),
        Field(validation_alias="other"),
        Field(validation_alias=AliasChoices("a", "b")),
    ],
)
def test_a_field_that_is_written_under_a_name_it_is_not_read_by_is_refused(field: Any) -> None:
    class Crossed(BaseModel):
        name: str = field

    assert "Field(alias=" in refused(Crossed)


def test_a_field_may_be_read_under_older_names_too() -> None:
    class Renamed(BaseModel):
        name: str = Field(validation_alias=AliasChoices("name", "title"))

    assert codec_for(Renamed).decode(b'{"title":"t"}', "k") == Renamed.model_construct(name="t")


def test_a_field_that_may_be_left_out_needs_a_default() -> None:
    class Link(BaseModel):
        token: OmittedIfNone[str]

    class Hidden(BaseModel):
        token: str = Field(exclude=True)

    assert "= None" in refused(Link)
    assert "= None" in refused(Hidden)


@pytest.mark.parametrize(
    ("type_", "inner"),
    [
        (str | None, str),
        (str, str),
        (Sealed[str] | None, Sealed[str]),
        (Annotated[str | None, "a"], Annotated[str, "a"]),
        (str | int | None, str | int),
    ],
    ids=str,
)
def test_without_none_removes_only_none(type_: Any, inner: Any) -> None:
    assert without_none(type_) == inner


# Versions.


class Profile(BaseModel):
    name: str
    ver: int = 3


class Unversioned(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str


def name_it(old: dict[str, Any]) -> dict[str, Any]:
    return {"full": old["first"] + " " + old["last"]}


def shorten_it(old: dict[str, Any]) -> dict[str, Any]:
    return {"name": old["full"]}


VERSIONS = Versions("ver", 3, {1: name_it, 2: shorten_it})
PROFILE = codec_for(Profile, versions=VERSIONS)


@pytest.mark.parametrize(
    "data",
    [
        b'{"first":"Kim","last":"Dev"}',
        b'{"first":"Kim","last":"Dev","ver":1}',
        b'{"full":"Kim Dev","ver":2}',
        b'{"name":"Kim Dev","ver":3}',
        b'{"ver":3,"name":"Kim Dev"}',
    ],
)
def test_old_shapes_are_upgraded_step_by_step_when_they_are_read(data: bytes) -> None:
    assert PROFILE.decode(data, "k") == Profile(name="Kim Dev")
    assert codec_for(Unversioned, versions=VERSIONS).decode(data, "k") == Unversioned(name="Kim Dev")


def test_the_declared_version_is_written_whatever_the_value_has() -> None:
    old = Profile(name="Kim Dev", ver=1)
    assert PROFILE.encode(old, "k") == b'{"name":"Kim Dev","ver":3}'
    assert old.ver == 1


def test_a_version_that_is_not_declared_is_written_at_the_end() -> None:
    class Empty(BaseModel):
        pass

    assert codec_for(Unversioned, versions=VERSIONS).encode(Unversioned(name="a"), "k") == b'{"name":"a","ver":3}'
    assert codec_for(Empty, versions=Versions("v", 1, {})).encode(Empty(), "k") == b'{"v":1}'


def test_a_frozen_dataclass_and_a_typed_dict_can_have_versions() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        v: int = 1

    class Dict(TypedDict):
        v: int

    versions = Versions("v", 2, {1: lambda old: old})
    assert codec_for(Frozen, versions=versions).encode(Frozen(), "k") == b'{"v":2}'
    assert codec_for(Dict, versions=versions).encode({"v": 1}, "k") == b'{"v":2}'


def test_a_version_field_may_have_another_name_in_python() -> None:
    class Aliased(BaseModel):
        schema_version: int = Field(2, alias="v")

    codec = codec_for(Aliased, versions=Versions("v", 2, {1: lambda old: old}))
    assert codec.encode(Aliased(v=1), "k") == b'{"v":2}'


def test_a_newer_version_is_reported_as_such() -> None:
    assert "newer program" in unread(PROFILE, b'{"name":"a","ver":4}')


@pytest.mark.parametrize("version", ["0", "-1", '"3"', "true", "3.0", "null", "[]"])
def test_a_version_that_never_was_is_unreadable(version: str) -> None:
    unread(PROFILE, f'{{"name":"a","ver":{version}}}'.encode())


@pytest.mark.parametrize("data", [b"[]", b"3", b"", b"{", b"null", b"\xff", b'{"name":NaN,"ver":3}'])
def test_a_value_that_is_not_an_object_has_no_version(data: bytes) -> None:
    unread(PROFILE, data)


def quote_it(old: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(old["name"])


@pytest.mark.parametrize(
    "upgrade",
    [quote_it, lambda old: None, lambda old: {"name": object()}, lambda old: {"name": math.nan}, lambda old: {}],
)
def test_an_upgrade_that_fails_is_unreadable_and_quotes_nothing(upgrade: Any) -> None:
    codec = codec_for(Profile, versions=Versions("ver", 2, {1: upgrade}))
    unread(codec, json.dumps({"name": SECRET}).encode())


def test_version_of_reads_the_version_of_stored_data() -> None:
    stored = [b"{}", b'{"ver":2}', b'{"ver":9}', b'{"ver":"2"}', b"[]", b"not JSON"]
    assert [PROFILE.version_of(data) for data in stored] == [1, 2, 9, None, None, None]
    assert codec_for(Profile).version_of(b'{"ver":2}') is None


def test_shown_is_the_current_shape_of_an_old_record() -> None:
    assert PROFILE.shown(b'{"full":"Kim Dev","ver":2}', "k") == {"name": "Kim Dev", "ver": 3}
    assert "newer program" in PROFILE.shown(b'{"ver":4}', "k")["unreadable"]


def test_the_schema_and_the_shape_have_the_version() -> None:
    codec = codec_for(Unversioned, versions=VERSIONS)
    assert codec.describe() == "JSON { name, ver }"
    assert codec.json_schema()["properties"]["ver"] == {"type": "integer", "const": 3}
    assert codec.json_schema()["required"] == ["name", "ver"]


@pytest.mark.parametrize(
    ("current", "upgrades", "oldest"),
    [
        (3, {1: name_it}, 1),
        (2, {}, 1),
        (2, {2: name_it}, 1),
        (2, {1: name_it, 2: name_it}, 1),
        (1, {}, 2),
        (True, {}, 1),
    ],
)
def test_upgrades_that_do_not_lead_to_the_current_version_are_refused(current: int, upgrades: Any, oldest: int) -> None:
    with pytest.raises(BadDeclaration) as caught:
        Versions("ver", current, upgrades, oldest)
    assert caught.value.finding == "bad-version"


@pytest.mark.parametrize(
    "type_", [str, int, list[str], dict[str, int], RootModel[dict[str, int]], Profile | Unversioned]
)
def test_only_an_object_with_fields_can_have_versions(type_: Any) -> None:
    refused(type_, "bad-version", VERSIONS)


@pytest.mark.parametrize("declared", [str, Literal[1, 2], float])
def test_a_version_field_that_cannot_hold_the_current_version_is_refused(declared: Any) -> None:
    class Wrong(BaseModel):
        ver: declared

    refused(Wrong, "bad-version", VERSIONS)
