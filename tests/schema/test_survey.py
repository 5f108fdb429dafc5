"""Survey of the stores, by family."""

import json

import pytest
from pydantic import BaseModel

from keystead import Hash, KeyRing, Keyspace, List, Log, Sealed, Set, SortedSet, Store, Value, after, never
from keystead.schema import survey as module
from keystead.schema.doctor import repair
from keystead.schema.survey import Survey, SurveyProgress, survey
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

FOREVER = never("a test")
RING = KeyRing({"2026": b"k" * 32})


class Account(BaseModel):
    name: str
    secret: Sealed[str]


class Keys(Keyspace):
    account = Value("account:{uid}", Account, lifetime=after("30d"))
    text = Value("text:{id}", str, lifetime=after("10d"))
    device = Hash("device:{did}", Account, lifetime=FOREVER)
    tags = Set("tags:{id}", str, lifetime=FOREVER)
    scores = SortedSet("scores:{id}", str, lifetime=FOREVER)
    letters = List("letters:{id}", Account, lifetime=FOREVER)
    log = Log("log:{id}", Account, lifetime=FOREVER)


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, seal=RING)


async def fill(keys: Keys) -> None:
    account = Account(name="Ada", secret="correct horse")
    for number in range(4):
        await keys.account(uid=f"u{number}").add(account)
        await keys.text(id=f"t{number}").add("x" * 10)
    await keys.device(did="d").add(account)
    await keys.tags(id="t").add("one", "two")
    await keys.scores(id="s").put({"one": 1})
    await keys.letters(id="l").append(account)
    await keys.log(id="e").append(account)


def of(found: Survey, name: str) -> module.FamilySurvey:
    return next(one for one in found.families if one.family.name == name)


@everywhere
async def test_keys_are_counted_by_family_with_their_bytes_and_the_time_they_have_left(
    keys: Keys, store: Store
) -> None:
    await fill(keys)
    await store.run([("PEXPIRE", "text:t0", 1000), ("PEXPIRE", "text:t1", 100_000), ("PERSIST", "text:t2")])
    await store.run([("SET", "tmp:1", "x"), ("SET", b"\xff", "x")])
    found = await survey([keys])
    assert {one.family.name: one.count for one in found.families} == {
        "account": 4, "text": 4, "device": 1, "tags": 1, "scores": 1, "letters": 1, "log": 1,
    }  # fmt: skip
    text = of(found, "text")
    assert (text.bytes, text.about) == (4 * (len("text:t0") + 10), False)
    assert text.ttls == {"none": 1, "<1m": 1, "<1h": 1, "<1d": 0, "<30d": 1, "more": 0}
    assert of(found, "tags").bytes == len("tags:t") + 6
    assert found.unknown == 2
    assert sorted(found.unknown_examples) == ["\\xff", "tmp:1"]
    assert found.count == 13


@everywhere
async def test_samples_show_values_and_hide_sealed_fields(keys: Keys, store: Store) -> None:
    await fill(keys)
    found = await survey([keys], samples=2)
    assert len(of(found, "account").samples) == 2
    assert of(found, "account").samples[0].value == {"name": "Ada", "secret": "(sealed)"}
    assert of(found, "text").samples[0].value == "x" * 10
    device = {name: value for entry in of(found, "device").samples[0].value["first"] for name, value in entry.items()}
    assert device == {"name": "Ada", "secret": "(sealed)"}
    assert sorted(of(found, "tags").samples[0].value["first"]) == ["one", "two"]
    assert of(found, "scores").samples[0].value == {"entries": 1, "first": [{"member": "one", "score": 1.0}]}
    assert of(found, "letters").samples[0].value["first"] == [{"name": "Ada", "secret": "(sealed)"}]
    assert of(found, "log").samples[0].value["first"][0]["item"] == {"name": "Ada", "secret": "(sealed)"}
    said = json.dumps(found.as_json())
    assert "correct horse" not in said
    assert "sealed.2026" not in said


async def test_sizes_beyond_the_read_values_are_marked_as_estimates(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ", 10)
    keys = Keys(memory, seal=RING)
    await memory.run([("SET", f"text:{number:03}", "x" * 10, "PX", 1000) for number in range(100)])
    text = of(await survey([keys]), "text")
    assert (text.count, text.read, text.bytes, text.about) == (100, 10, 100 * (8 + 10), True)


async def test_a_large_key_is_read_in_part(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await memory.run([("RPUSH", "letters:l", *["x" * 10] * 2_000), ("SADD", "tags:t", *range(2_000))])
    await memory.run([("ZADD", "scores:s", number, f"x{number:09}") for number in range(1_000)])
    found = await survey([keys])
    assert (of(found, "letters").bytes, of(found, "letters").about) == (len("letters:l") + 20_000, True)
    assert (of(found, "scores").bytes, of(found, "scores").about) == (len("scores:s") + 1_000 * 18, True)
    assert of(found, "tags").samples[0].value == {"entries": 2_000, "first": []}


async def test_only_the_families_that_are_named_are_counted(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await fill(keys)
    await memory.run([("SET", "tmp:1", "x")])
    seen: list[SurveyProgress] = []
    found = await survey([keys], [Keys.text], on_progress=seen.append)
    assert [(one.family.name, one.count) for one in found.families] == [("text", 4)]
    assert found.unknown == 0
    assert seen[-1] == SurveyProgress(4, None)
    await survey([keys], on_progress=seen.append)
    assert seen[-1] == SurveyProgress(14, 14)


async def test_a_key_of_another_kind_and_a_value_that_cannot_be_read_are_shown_as_such(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await memory.run([("SET", "tags:t", "x"), ("SET", "account:u", '{"name":7}')])
    found = await survey([keys])
    assert "kind differs" in of(found, "tags").samples[0].value["unreadable"]
    assert "unreadable" in of(found, "account").samples[0].value


async def test_quarantined_keys_are_a_family_of_their_own(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    assert "quarantine" not in {one.family.name for one in (await survey([keys])).families}
    await memory.run([("SET", "tags:t", "x")])
    await repair([keys], set_aside="all")
    assert of(await survey([keys]), "quarantine").samples[0].value["key"] == "tags:t"


async def test_bookkeeping_keys_of_copy_and_restore_are_not_unknown(memory: Store) -> None:
    await memory.run([("SET", "keystead:copy:1", "x"), ("SET", "keystead:restore:1", "x"), ("SET", "tmp:1", "x")])
    found = await survey([Keys(memory, seal=RING)])
    assert (found.unknown_examples, found.others) == (["tmp:1"], {"keystead copy and restore": 2})
