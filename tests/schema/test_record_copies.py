"""Copies of a decoded record: equal to it, and independent of it."""

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr

from keystead.schema.record_copies import copier_of


class Color(Enum):
    RED = "red"


class Record(BaseModel):
    name: str = "Ann"
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    color: Color = Color.RED
    cart: list[str] = ["apple"]
    counts: dict[str, int] = {"a": 1}
    tags: set[str] = {"x"}
    pair: tuple[int, int] = (1, 2)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = "Ann"


class Nested(BaseModel):
    rows: list[list[int]] = [[1]]


class Parent(BaseModel):
    child: Frozen = Frozen()


class InTuple(BaseModel):
    pairs: tuple[list[int], ...] = ([1],)


class Private(BaseModel):
    _seen: list[int] = PrivateAttr(default_factory=list)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.parametrize("record", [Record(name="Bea"), Record(), Frozen(name="Bea")])
def test_a_copy_equals_the_record_in_every_way(record: BaseModel) -> None:
    copy = copier_of(record)
    assert copy is not None
    made = copy()
    assert made == record
    assert type(made) is type(record)
    assert made is not record
    assert made.model_fields_set == record.model_fields_set
    assert made.model_dump_json() == record.model_dump_json()
    assert made.model_copy(update={"name": "Cleo"}).name == "Cleo"  # type: ignore[attr-defined]


def test_changes_of_a_copy_reach_neither_the_record_nor_other_copies() -> None:
    record = Record()
    copy = copier_of(record)
    assert copy is not None
    first, second = copy(), copy()
    first.name = "Bea"
    first.cart.append("pear")
    first.counts["b"] = 2
    first.tags.clear()
    for one in (record, second, copy()):
        assert one == Record()
        assert one.model_fields_set == set()


@pytest.mark.parametrize("record", [Nested(), Parent(), InTuple(), Private(), Open(more=1)])
def test_a_record_that_a_copy_would_share_something_with_is_not_copied(record: Any) -> None:
    assert copier_of(record) is None
