"""Relations that `infer` finds in a store, and those that it does not declare."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from keystead import connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import DraftFamily, infer
from tests.schema.drafted_keyspace import keyspace_of


def drafted(*commands: tuple[Any, ...]) -> dict[str, DraftFamily]:
    """The drafted families of a store with these keys. The draft is sound, and the doctor finds nothing."""

    async def look() -> dict[str, DraftFamily]:
        async with connect("memory://") as store:
            await store.run(commands)
            found = await infer(store)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            assert (await examine([keyspace(store)])).counts == {}
            return {one.name: one for one in found.draft.families}

    return asyncio.run(look())


def relations(family: DraftFamily) -> list[tuple[str, Any, dict[str, Any]]]:
    return [(one.kind, one.link.target, dict(one.link.where)) for one in family.relations]


ACCOUNTS = [("SET", f"account:{at}", json.dumps({"name": f"Person {at}"})) for at in range(1, 31)]


def test_a_numeric_field_that_is_named_after_a_family_leads_to_it() -> None:
    found = drafted(
        *ACCOUNTS,
        *[("SET", f"invoice:{at}", json.dumps({"accountId": at % 30 + 1, "total": at % 30 + 1})) for at in range(40)],
        *[("HSET", f"parcel:{at:08x}", "account", at % 30 + 1, "weight", at % 30 + 1) for at in range(40)],
    )
    assert relations(found["invoice"]) == [("leads_to", "account", {"account_id": "accountId"})]
    assert relations(found["parcel"]) == [("leads_to", "account", {"account_id": "account"})]


def test_numbers_that_happen_to_be_ids_lead_nowhere() -> None:
    found = drafted(*ACCOUNTS, *[("SET", f"rating:{at}", json.dumps({"stars": at % 5 + 1})) for at in range(40)])
    assert relations(found["rating"]) == []


def test_a_set_of_numeric_ids_is_an_index_if_it_is_named_after_the_family() -> None:
    found = drafted(
        *ACCOUNTS, ("SADD", "accounts", *range(1, 31)), *[("SADD", f"scores:{at}", 1, 2, 3, 4) for at in range(9)]
    )
    assert relations(found["account"]) == [("listed_in", "accounts", {})]


def test_members_values_and_items_that_are_whole_keys_are_named_in_a_comment() -> None:
    keys = [f"account:{at}" for at in range(1, 31)]
    found = drafted(
        *ACCOUNTS,
        ("SADD", "online", *keys),
        ("RPUSH", "waiting", *keys),
        *[("SET", f"alias:{at}", key) for at, key in enumerate(keys)],
    )
    assert "its members are whole keys of account" in found["online"].evidence
    assert "its items are whole keys of account" in found["waiting"].evidence
    assert "its values are whole keys of account" in found["alias"].evidence
    assert relations(found["account"]) == []


def test_a_key_owns_what_is_below_it_if_each_of_those_has_its_owner() -> None:
    settings = [("HSET", f"account:{at}:settings", "theme", "dark") for at in range(1, 31)]
    drafts = [("SET", f"account:{at}:draft", "text") for at in range(20, 41)]
    found = drafted(*ACCOUNTS, *settings, *drafts)
    assert relations(found["account"]) == [("owns", "account_settings", {})]


def test_few_keys_are_no_proof_of_an_owner() -> None:
    found = drafted(*ACCOUNTS, *[("SET", f"account:{at}:draft", "text") for at in range(1, 5)])
    assert relations(found["account"]) == []
