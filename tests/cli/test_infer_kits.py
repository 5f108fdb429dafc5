"""`keystead infer` on stores that sixty users of a kit wrote through a server, without a look at its `keys.py`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Store, connect
from keystead.cli.keyspace_arguments import keyspaces
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.family import Family
from keystead.schema.family_lookup import Belonging, name_of
from keystead.schema.infer import infer
from keystead.schema.lifetime import Never, Sliding
from tests.cli.kit_users import USERS, Visits, kit_server
from tests.schema.drafted_keyspace import keyspace_of

_USERS = 60
# Families whose deadline moves with use, although they are not declared as sliding: the end of session data is computed
# from its last use, and a cached membership and a chain of refresh tokens are written anew.
_RENEWED = {
    "SessionDataKeys.session",
    "SessionDataKeys.read_once",
    "MembershipKeys.membership_stale",
    "MembershipKeys.refresh_chain",
}
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000


def _class_of(family: Family[Any]) -> str:
    lifetime = family.lifetime
    return "never" if isinstance(lifetime, Never) else "sliding" if isinstance(lifetime, Sliding) else "fixed"


def _owner_of(store: Store, *classes: type[Keyspace]) -> Callable[[bytes], Family[Any] | None]:
    belonging = Belonging(store, [bound for one in classes for bound in one(store, needs_seal=False).bounds()])

    def find(raw: bytes) -> Family[Any] | None:
        member = belonging.of(raw)
        return None if member is None else member.bound.family

    return find


@pytest.mark.everyday("teamwork")
@pytest.mark.parametrize("kit", USERS)
def test_nineteen_of_twenty_keys_of_a_kit_are_in_the_right_family(
    kit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right kind and lifetime class, families that do not overlap, and a doctor that finds nothing.

    Half of the users come back after an hour, the others between the two looks at the store, as do the first again.
    """
    known: dict[int, Visits] = {user: {} for user in range(_USERS)}

    async def look() -> None:
        async with kit_server(kit, tmp_path, monkeypatch) as server, connect(server.store_url) as store:

            async def visit(users: range) -> None:
                for user in users:
                    await USERS[kit](server, user, known[user])

            keys = set[bytes]()  # at the first look, which the families are drafted from

            async def between() -> None:
                keys.update([key async for page in store.scan("*") for key in page])
                server.passed_ms += 2 * _MINUTE_MS
                await visit(range(_USERS))

            await visit(range(_USERS))
            server.passed_ms += _HOUR_MS + _MINUTE_MS
            await visit(range(_USERS // 2))
            found = await infer(store, between=between)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            truth, drafted = _owner_of(store, *keyspaces(None)), _owner_of(store, keyspace)
            count, wrong = 0, Counter[Any]()
            for key in keys:
                true, mine = truth(key), drafted(key)
                if true is None:
                    continue
                count += 1
                said = mine and (mine.pattern.text, mine.kind_name, _class_of(mine))
                classes = {_class_of(true), *(["sliding"] if name_of(true) in _RENEWED else [])}
                if mine is None or mine.kind_name != true.kind_name or _class_of(mine) not in classes:
                    wrong[true.name, said] += 1
            assert count > 2 * _USERS
            assert wrong.total() <= count * 0.05, (count, wrong, found.draft.notes)
            report = await examine([keyspace(store)])
            odd = [one.finding for one in report.found]
            assert [one for one in odd if one.code != "unknown-key" or one.key in {key.decode() for key in keys}] == []

    asyncio.run(look())
