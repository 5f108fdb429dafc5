"""Value models that `infer` drafts from JSON and hashes, and that read the values which they were drafted from."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from keystead import Counter, Hash, Keyspace, List, Log, Set, SortedSet, Value, connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import infer
from keystead.stores import Command
from tests.schema.drafted_keyspace import keyspace_of

_KEYS = 60


Models = dict[str, dict[str, str]]


def drafted(commands: list[Command]) -> tuple[type[Keyspace], Models]:
    """The keyspace and, by the name of each model, the types of its fields as text. The doctor finds nothing.

    The value of a family that is no model is under the name of the family.
    """

    async def look() -> tuple[type[Keyspace], Models]:
        async with connect("memory://") as store:
            await store.run(commands)
            found = await infer(store)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            report = await examine([keyspace(store)])
            assert (report.counts, report.unknown.as_json()) == ({}, [])
            others = {one.name: {"": one.value} for one in found.draft.families if "[" in one.value}
            return keyspace, others | {
                model.name: {
                    one.name: one.type + (" | None" if one.nullable else "") + ("" if one.required else "?")
                    for one in model.fields
                }
                for model in found.draft.models
            }

    return asyncio.run(look())


def documents(*values: Any) -> list[Command]:
    return [("SET", f"doc:{at}", json.dumps(values[at % len(values)])) for at in range(_KEYS)]


# The values of keys, and the models that read them. `?`: the field is missing in some values.
VALUES: dict[str, tuple[list[Any], dict[str, dict[str, str]]]] = {
    "nested models": (
        [{"owner": {"name": "Ada", "address": {"city": "Paris", "zip": "75001"}}}],
        {
            "DocOwnerAddress": {"city": "str", "zip": "str"},
            "DocOwner": {"name": "str", "address": "DocOwnerAddress"},
            "Doc": {"owner": "DocOwner"},
        },
    ),
    "lists of lists and of models": (
        [
            {
                "rows": [[1, 2], [3]],
                "tags": ["a b", "c d"],
                "lines": [{"sku": "x 1", "count": 2}, {"sku": "y 2"}],
                "none": [],
            }
        ],
        {
            "DocLine": {"sku": "str", "count": "int?"},
            "Doc": {"rows": "list[list[int]]", "tags": "list[str]", "lines": "list[DocLine]", "none": "list[Any]"},
        },
    ),
    "null beside missing": (
        [{"a": 1, "b": None, "c": "x y"}, {"a": None, "c": "x z"}, {"a": 2, "b": "no w", "c": "v w"}],
        {"Doc": {"a": "int | None", "b": "str | None?", "c": "str"}},
    ),
    "null in a list": ([{"points": [1, None, 3]}], {"Doc": {"points": "list[int | None]"}}),
    "moments": (
        [
            {
                "createdAt": 1_770_000_000_000,
                "exp": 1_770_000_000,
                "seen": "2026-02-03T04:05:06.789Z",
                "day": "2026-02-03",
            }
        ],
        {"Doc": {"createdAt": "EpochMs", "exp": "EpochSeconds", "seen": "IsoTime", "day": "date"}},
    ),
    "numbers and texts that are no moments": (
        [{"at": 12, "total": 1_770_000_000_000, "updated": "soon, maybe"}],
        {"Doc": {"at": "int", "total": "int", "updated": "str"}},
    ),
    "integers beside decimals": ([{"price": 3}, {"price": 3.5}], {"Doc": {"price": "float"}}),
    "texts beside numbers": ([{"price": 3}, {"price": "three"}], {"Doc": {"price": "Any"}}),
    "an enumeration": (
        [{"state": "open", "on": True}, {"state": "paid", "on": False}],
        {"Doc": {"state": 'Literal["open", "paid"]', "on": "bool"}},
    ),
    "a UUID": ([{"ref": "6f1c2d3e-0000-4000-8000-00000000000a"}], {"Doc": {"ref": "UUID"}}),
    "names that are no identifiers": (
        [{"content-type": "a/b", "class": 1, "größe": 2, "model_x": 3, "__a": 4}],
        {"Doc": {"content-type": "str", "class": "int", "größe": "int", "model_x": "int", "__a": "int"}},
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_model_of_json_values_has_their_fields(name: str) -> None:
    values, models = VALUES[name]
    keyspace, found = drafted(documents(*values))
    assert found == models
    [family] = keyspace.families.values()
    assert isinstance(family, Value)


@pytest.mark.parametrize("name", VALUES)
def test_a_hash_has_the_same_models_inside_its_fields(name: str) -> None:
    """Its fields are JSON where they are no texts or numbers, and are never null."""
    values, _ = VALUES[name]
    commands: list[Command] = []
    for at in range(_KEYS):
        for field, value in values[at % len(values)].items():
            if value is not None:
                commands.append(("HSET", f"doc:{at}", field, value if isinstance(value, str) else json.dumps(value)))
    keyspace, _ = drafted(commands)
    [family] = keyspace.families.values()
    assert isinstance(family, Hash)


def test_an_object_whose_names_are_ids_is_a_dict() -> None:
    draw = random.Random(3)
    values = [{f"{draw.getrandbits(64):016x}": {"count": at, "note": "x y"} for _ in range(4)} for at in range(_KEYS)]
    keyspace, models = drafted([("SET", f"doc:{at}", json.dumps(value)) for at, value in enumerate(values)])
    assert models == {"doc": {"": "dict[str, DocEntry]"}, "DocEntry": {"count": "int", "note": "str"}}
    assert isinstance(keyspace.families["doc"], Value)


def test_each_kind_of_redis_is_its_kind_of_family() -> None:
    commands: list[Command] = []
    for at in range(_KEYS):
        commands += [
            ("SET", f"count:{at}", at),
            ("SET", f"text:{at}", f"text {at}"),
            ("HSET", f"record:{at}", "a", at, "b", "x y"),
            ("SADD", f"tags:{at}", f"tag {at}", "new tag"),
            ("ZADD", f"scores:{at}", at, f"player {at}"),
            ("RPUSH", f"queue:{at}", json.dumps({"to": "a b"})),
            ("XADD", f"events:{at}", "*", "data", json.dumps({"kind": "x y"})),
        ]
    keyspace, _ = drafted(commands)
    assert {name: type(family) for name, family in keyspace.families.items()} == {
        "count": Counter, "text": Value, "record": Hash, "tags": Set, "scores": SortedSet, "queue": List, "events": Log,
    }  # fmt: skip
