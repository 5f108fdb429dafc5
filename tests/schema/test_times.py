"""Times and large integers in JSON, as other programs write them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from keystead.errors import BadValue, Unreadable
from keystead.schema.codec import codec_for
from keystead.schema.times import BigInt, EpochMs, EpochSeconds, IsoSeconds, IsoTime, deadline_ms

SEOUL = timezone(timedelta(hours=9))
NEW_YEAR = datetime(2024, 12, 31, 15, tzinfo=UTC)
# Moments that still exist in UTC.
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from([UTC, SEOUL]))


class Times(BaseModel):
    at_ms: EpochMs
    at_s: EpochSeconds
    at: IsoTime
    views: BigInt


TIMES = Times(at_ms=NEW_YEAR, at_s=NEW_YEAR, at=NEW_YEAR, views=2**60)


def floor(moment: datetime, unit: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (moment - epoch) // unit * unit


def test_a_type_checker_sees_datetimes_and_integers() -> None:
    assert_type(TIMES.at_ms, datetime)
    assert_type(TIMES.at, datetime)
    assert_type(TIMES.views, int)


def test_a_model_stores_milliseconds_seconds_iso_text_and_digits() -> None:
    assert codec_for(Times).encode(TIMES, "k") == (
        b'{"at_ms":1735657200000,"at_s":1735657200,"at":"2024-12-31T15:00:00.000Z","views":"1152921504606846976"}'
    )


def test_iso_time_is_written_as_the_document_shows_it() -> None:
    assert codec_for(IsoTime).encode(NEW_YEAR, "k") == b"2024-12-31T15:00:00.000Z"


def test_iso_time_is_written_in_utc() -> None:
    assert codec_for(IsoTime).encode(datetime(2025, 1, 1, tzinfo=SEOUL), "k") == b"2024-12-31T15:00:00.000Z"


def test_iso_seconds_are_written_in_utc_without_a_fraction() -> None:
    assert codec_for(IsoSeconds).encode(datetime(2026, 2, 23, 19, tzinfo=SEOUL), "k") == b"2026-02-23T10:00:00Z"


@given(MOMENTS)
def test_epoch_ms_is_rounded_down_to_the_millisecond(moment: datetime) -> None:
    codec = codec_for(EpochMs)
    assert codec.decode(codec.encode(moment, "k"), "k") == floor(moment, timedelta(milliseconds=1))


@given(MOMENTS)
def test_epoch_seconds_are_rounded_down(moment: datetime) -> None:
    codec = codec_for(EpochSeconds)
    assert codec.decode(codec.encode(moment, "k"), "k") == floor(moment, timedelta(seconds=1))


@given(MOMENTS)
def test_iso_time_is_rounded_down_to_the_millisecond(moment: datetime) -> None:
    codec = codec_for(IsoTime)
    assert codec.decode(codec.encode(moment, "k"), "k") == floor(moment, timedelta(milliseconds=1))


@given(MOMENTS)
def test_iso_seconds_are_rounded_down(moment: datetime) -> None:
    codec = codec_for(IsoSeconds)
    assert codec.decode(codec.encode(moment, "k"), "k") == floor(moment, timedelta(seconds=1))


def test_a_moment_before_1970_is_cut_towards_the_past_too() -> None:
    assert codec_for(EpochMs).encode(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "k") == b"-1"


@given(st.integers())
def test_a_big_integer_round_trips(number: int) -> None:
    codec = codec_for(BigInt)
    assert codec.decode(codec.encode(number, "k"), "k") == number


def test_a_big_integer_is_also_read_from_a_json_integer() -> None:
    class Views(BaseModel):
        total: BigInt

    assert codec_for(Views).decode(b'{"total":42}', "k").total == 42


@pytest.mark.parametrize(
    "text",
    [
        "2024-12-31T15:00:00Z",
        "2024-12-31T15:00:00.000Z",
        "2025-01-01T00:00:00+09:00",
        "2025-01-01T00:00:00.000000+09",
        "20241231T150000Z",
        "2024-12-31 15:00:00+00:00",
        "2024-12-31t15:00:00z",
        "2025-W01-2T15:00:00Z",
    ],
)
def test_any_iso_8601_time_with_an_offset_is_read(text: str) -> None:
    assert codec_for(IsoTime).decode(text.encode(), "k") == NEW_YEAR


def test_a_time_is_read_in_utc() -> None:
    assert codec_for(IsoTime).decode(b"2025-01-01T00:00:00+09:00", "k").tzinfo == UTC


@pytest.mark.parametrize(
    "text",
    ["2024-12-31T15:00:00", "2024-12-31", "1735657200", "2024-12-31x15:00:00Z", "2024-13-01T00:00:00Z", "", "now"],
)
def test_a_text_that_is_not_a_time_with_an_offset_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        codec_for(IsoTime).decode(text.encode(), "k")


@pytest.mark.parametrize("text", ["2024-12-31T15:00:00Z", "2024-12-31T15:00:00.000Z", "2025-01-01T00:00:00+09:00"])
def test_iso_seconds_are_read_from_any_iso_8601_time_with_an_offset(text: str) -> None:
    moment = codec_for(IsoSeconds).decode(text.encode(), "k")
    assert (moment, moment.tzinfo) == (NEW_YEAR, UTC)


@pytest.mark.parametrize("text", ["2024-12-31T15:00:00", "2024-12-31", "1735657200", ""])
def test_iso_seconds_are_refused_in_the_words_of_iso_time(text: str) -> None:
    said = []
    for type_ in (IsoSeconds, IsoTime):
        with pytest.raises(Unreadable, match="with its offset") as caught:
            codec_for(type_).decode(text.encode(), "k")
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("value", [datetime(2024, 12, 31), "2024-12-31T15:00:00Z", 1735657200, None])
def test_only_an_aware_datetime_is_written_as_iso_seconds(value: Any) -> None:
    with pytest.raises(BadValue, match="should be a datetime"):
        codec_for(IsoSeconds).encode(value, "k")


@pytest.mark.parametrize("json", ["true", "1.5", '"1735657200000"', "null", '"2024-12-31T15:00:00Z"', "1" + "0" * 30])
@pytest.mark.parametrize("type_", [EpochMs, EpochSeconds])
def test_only_an_integer_within_the_calendar_is_read_as_epoch_time(type_: Any, json: str) -> None:
    with pytest.raises(Unreadable):
        codec_for(list[type_]).decode(f"[{json}]".encode(), "k")


@pytest.mark.parametrize(
    "json", ["true", "1.0", '"01"', '" 1"', '"+1"', '"1_000"', '"1.0"', '""', '"-0"', '"٣"', "null"]
)
def test_only_plain_digits_are_read_as_a_big_integer(json: str) -> None:
    with pytest.raises(Unreadable):
        codec_for(list[BigInt]).decode(f"[{json}]".encode(), "k")


@pytest.mark.parametrize("type_", [EpochMs, EpochSeconds, IsoTime])
def test_a_naive_datetime_is_refused_when_it_is_written(type_: Any) -> None:
    with pytest.raises(BadValue, match="k: "):
        codec_for(type_).encode(datetime(2024, 12, 31), "k")


def test_a_naive_datetime_is_refused_by_the_model() -> None:
    with pytest.raises(ValidationError, match="time zone"):
        Times(at_ms=datetime(2024, 12, 31), at_s=NEW_YEAR, at=NEW_YEAR, views=1)


def test_a_naive_datetime_that_is_set_later_is_refused_when_it_is_written() -> None:
    times = TIMES.model_copy(update={"at_s": datetime(2024, 12, 31)})
    with pytest.raises(BadValue, match="at_s"):
        codec_for(Times).encode(times, "k")


@pytest.mark.parametrize("value", [1735657200000, "2024-12-31T15:00:00.000Z", 1.5, True, None])
@pytest.mark.parametrize("type_", [EpochMs, IsoTime])
def test_the_json_form_is_not_accepted_as_a_datetime_on_write(type_: Any, value: Any) -> None:
    with pytest.raises(BadValue):
        codec_for(type_).encode(value, "k")


@pytest.mark.parametrize("value", [True, "1", 1.0, None])
def test_only_an_integer_is_written_as_a_big_integer(value: Any) -> None:
    with pytest.raises(BadValue):
        codec_for(BigInt).encode(value, "k")


def test_a_web_framework_may_pass_on_the_json_form() -> None:
    body = {"at_ms": 1735657200000, "at_s": 1735657200, "at": "2024-12-31T15:00:00Z", "views": str(2**60)}
    assert Times.model_validate(body) == TIMES


def test_model_dump_gives_the_python_values() -> None:
    assert TIMES.model_dump() == {"at_ms": NEW_YEAR, "at_s": NEW_YEAR, "at": NEW_YEAR, "views": 2**60}


@pytest.mark.parametrize(
    ("type_", "kind", "format_"),
    [
        (EpochMs, "integer", "epoch-ms"),
        (EpochSeconds, "integer", "epoch-s"),
        (IsoTime, "string", "date-time"),
        (BigInt, "string", "big-integer"),
    ],
)
def test_the_json_schema_describes_the_stored_form(type_: Any, kind: str, format_: str) -> None:
    schema = codec_for(type_).json_schema()
    assert (schema["type"], schema["format"]) == (kind, format_)


def test_the_json_schema_of_a_request_takes_a_big_integer_in_both_forms() -> None:
    choices = Times.model_json_schema()["properties"]["views"]["anyOf"]
    assert [choice["type"] for choice in choices] == ["string", "integer"]


def test_a_deadline_is_taken_from_an_aware_datetime() -> None:
    assert deadline_ms(datetime(2025, 1, 1, tzinfo=SEOUL)) == 1735657200000


def test_a_deadline_is_never_later_than_the_datetime() -> None:
    assert deadline_ms(datetime(2024, 12, 31, 15, microsecond=999, tzinfo=UTC)) == 1735657200000


def test_a_deadline_is_taken_from_an_integer_in_its_unit() -> None:
    assert deadline_ms(1735657200000) == deadline_ms(1735657200, unit="s") == 1735657200000


@pytest.mark.parametrize("value", [True, 1735657200000.0, datetime(2024, 12, 31), "1735657200000", None])
def test_no_guess_is_made_about_a_deadline(value: Any) -> None:
    with pytest.raises(BadValue, match="deadline"):
        deadline_ms(value)
