"""Tables of the previous version are migrated with their data."""

from __future__ import annotations

from uuid import uuid4

from sqlalchemy import Connection, insert

from keystead.kits.membership.service import Ledger
from keystead.kits.membership.service.promotions import Promotions, Redemption
from keystead.kits.membership.service.tables import BONUS_TOKENS, LICENSE_HISTORY, MEMBERSHIP_TABLES, PROFILES
from keystead.parts.tables import TableSet, open_tables
from tests.every_database import database_url, on_databases

__all__ = ["database_url"]

VERSION_1 = TableSet("membership", MEMBERSHIP_TABLES.changes[:1])


def fill(connection: Connection) -> None:
    """Data of the previous version: a member with two plans and a bonus, and one without a plan."""
    for user in ("123", "124"):
        profile = uuid4()
        row = {"id": profile, "patreon_user_id": user, "created_at_ms": 1, "updated_at_ms": 1}
        connection.execute(insert(PROFILES).values(row))
        if user == "124":
            continue
        for place, plan in ((1, "Pro"), (2, "Ultimate")):
            connection.execute(
                insert(LICENSE_HISTORY).values(
                    profile_id=profile,
                    event_id=f"e{place}",
                    old_plan="Free",
                    new_plan=plan,
                    source="members:pledge:update",
                    place=place,
                    at_ms=place,
                )
            )
        bonus = {"bonus_id": "gift", "granted": 10, "used": 4, "source": "gift", "granted_at_ms": 1}
        connection.execute(insert(BONUS_TOKENS).values(profile_id=profile, **bonus))


@on_databases()
async def test_an_upgrade_keeps_plans_and_bonuses(database_url: str) -> None:
    if database_url == "memory://":
        return  # memory is gone after closing
    async with open_tables(database_url, VERSION_1) as tables:
        await tables.write(fill)
    [plan] = await open_tables(database_url, MEMBERSHIP_TABLES).upgrade(dry_run=True)
    assert (plan.found, plan.version) == (1, 2)
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        ledger, promotions = Ledger(tables), Promotions(tables, "PROMO")
        assert (await ledger.plan_of("123"), await ledger.plan_of("124")) == ("Ultimate", None)
        assert (await ledger.status("123", "Ultimate", 0)).bonus_left == 6
        code = (await promotions.make("Pro", 0, lasts_ms=1000)).code
        assert isinstance(await promotions.redeem("124", code, 1), Redemption)
        # An interrupted migration, as on MySQL, is run again.
        await tables.write(MEMBERSHIP_TABLES.changes[1].do)
        assert (await ledger.plan_of("123"), await ledger.plan_of("124")) == ("Ultimate", None)
