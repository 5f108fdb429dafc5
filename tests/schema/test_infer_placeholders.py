"""Each kind of placeholder that `infer` recognizes, at the end and in the middle of a key."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import DraftFamily, infer
from tests.schema.drafted_keyspace import keyspace_of

_KEYS = 40
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty")

Text = Callable[[random.Random, int], str]

# The placeholder of `page:…`, and a text for each number.
KINDS: dict[str, tuple[str, Text]] = {
    "integer": ("{page_id:int}", lambda draw, at: str(draw.getrandbits(40))),
    "negative integer": ("{page_id:int}", lambda draw, at: f"-100{at + 1}"),
    "uuid": ("{page_id:uuid}", lambda draw, at: str(uuid.UUID(int=draw.getrandbits(128), version=4))),
    "uuid in capitals": ("{page_id:token}", lambda draw, at: str(uuid.UUID(int=draw.getrandbits(128))).upper()),
    "hex": ("{page_id:hex}", lambda draw, at: f"{draw.getrandbits(128):032x}"),
    "date": ("{date:date}", lambda draw, at: f"2026-{at % 12 + 1:02}-{at % 28 + 1:02}"),
    "month": ("{month:month}", lambda draw, at: f"{1980 + at}-{at % 12 + 1:02}"),
    "compact date": ("{page_id:int}", lambda draw, at: f"2026{at % 12 + 1:02}{at % 28 + 1:02}"),
    "token": ("{page_id:token}", lambda draw, at: f"{draw.getrandbits(64):x}-Q_{draw.getrandbits(40):X}z"),
    "address": ("{ip:ip}", lambda draw, at: f"10.{at}.{draw.randrange(256)}.7"),
    "e-mail": ("{email}", lambda draw, at: f"{draw.choice(_WORDS)}.{at}@example.org"),
    "escaped e-mail": ("{url:uri}", lambda draw, at: f"{draw.choice(_WORDS)}{at}%40example.org"),
    "escaped URL": ("{url:uri}", lambda draw, at: f"https%3A%2F%2Fexample.com%2F{draw.choice(_WORDS)}%2F{at}"),
    "URL": ("https:{url}", lambda draw, at: f"https://example.com/{draw.choice(_WORDS)}/{at}?q=1"),
    "slug": ("{page_id:slug}", lambda draw, at: f"{draw.choice(_WORDS)}-{draw.choice(_WORDS)}-{at}"),
    "name": ("{page_id:alnum}", lambda draw, at: f"{draw.choice(_WORDS)}{at}"),
}  # fmt: skip


def drafted(keys: list[str]) -> list[DraftFamily]:
    async def look() -> list[DraftFamily]:
        async with connect("memory://") as store:
            await store.run([("SET", key, f"text {at}") for at, key in enumerate(keys)])
            found = await infer(store)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            report = await examine([keyspace(store)])
            assert (report.counts, report.unknown.as_json()) == ({}, [])
            return found.draft.families

    return asyncio.run(look())


@pytest.mark.parametrize("after", ["", ":views"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_placeholder_has_the_narrowest_type(kind: str, after: str) -> None:
    placeholder, text = KINDS[kind]
    draw = random.Random(7)
    [family] = drafted([f"page:{text(draw, at)}{after}" for at in range(_KEYS)])
    assert family.pattern == f"page:{placeholder}{after}"


def test_an_enumeration_is_a_placeholder_whose_values_are_in_a_comment() -> None:
    languages = ("de", "en", "fr", "ja", "pt-BR")
    [family] = drafted([f"page:{language}:{at}" for language in languages for at in range(10)])
    assert family.pattern == "page:{page_id:token}:{page_id2:int}"
    assert "page_id is one of de, en, fr, ja, pt-BR" in family.evidence


def test_words_that_may_be_entities_stay_families() -> None:
    found = drafted([f"shop:{entity}:{at}" for entity in ("order", "basket", "coupon") for at in range(10)])
    assert {one.pattern for one in found} == {
        "shop:order:{order_id:int}",
        "shop:basket:{basket_id:int}",
        "shop:coupon:{coupon_id:int}",
    }


def test_few_texts_of_many_values_are_a_literal() -> None:
    async def look() -> list[DraftFamily]:
        async with connect("memory://") as store:
            await store.run(
                [("SET", f"state:{at}", ("open", "paid", "sent")[at % 3]) for at in range(45)]
                + [("RPUSH", f"steps:{at}", "packed", "sent") for at in range(45)]
                + [("SET", f"word:{at}", _WORDS[at % 10]) for at in range(45)]
            )
            return (await infer(store)).draft.families

    assert {one.name: one.value for one in asyncio.run(look())} == {
        "state": 'Literal["open", "paid", "sent"]',
        "steps": 'Literal["packed", "sent"]',
        "word": "str",
    }
