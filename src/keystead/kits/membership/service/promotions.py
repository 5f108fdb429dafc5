"""Promotions: codes that give a plan's tokens as a bonus, each member once and no more often than was promised."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

from sqlalchemy import Connection, insert, select, update

from keystead.errors import BadValue
from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger import (
    MONTHLY_TOKENS,
    check_tokens,
    check_user,
    insert_bonus,
    locked_profile,
)
from keystead.kits.membership.service.tables import PROFILES, PROMOTIONS, REDEMPTIONS
from keystead.parts.digest import digest
from keystead.parts.tables import Tables, insert_new

# Crockford's alphabet: nothing in it looks like something else.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE_LENGTH: Final = 8
USES_MAX: Final = 1_000_000
_SHOWN: Final = 2

NotRedeemed: TypeAlias = Literal["INVALID_CODE", "CODE_EXPIRED", "CODE_USED_UP", "ALREADY_REDEEMED"]


@dataclass(frozen=True)
class NewPromotion:
    """A promotion that was made. The code is told once: the table keeps its digest."""

    code: str = field(repr=False)
    masked: str


@dataclass(frozen=True)
class Promotion:
    """A promotion, as an operator may see it."""

    masked: str
    plan: Plan
    bonus_tokens: int
    max_uses: int
    uses: int
    redeem_before_ms: int | None
    made_at_ms: int


@dataclass(frozen=True)
class Redeemed:
    """What a member got of a code."""

    masked: str
    plan: Plan
    redeemed_at_ms: int
    expires_at_ms: int
    bonus_tokens: int = 0


class Promotions:
    """The promotions of the membership kit. Each operation is one transaction.

    prefix   what a code begins with, before its dash
    """

    def __init__(self, tables: Tables, prefix: str) -> None:
        self._tables = tables
        self._prefix = prefix
        self._code = re.compile(rf"{re.escape(prefix)}-([{ALPHABET}]{{{CODE_LENGTH}}})")

    async def make(
        self,
        plan: Plan,
        at_ms: int,
        *,
        max_uses: int = 1,
        lasts_ms: int,
        redeem_before_ms: int | None = None,
        bonus_tokens: int | None = None,
    ) -> NewPromotion:
        """A new code, for so many members. Without `bonus_tokens` each gets what the plan gives in a month."""
        tokens = MONTHLY_TOKENS[plan] if bonus_tokens is None else bonus_tokens
        check_tokens(tokens)
        if not 1 <= max_uses <= USES_MAX:
            raise BadValue(f"a code is redeemed by 1 to {USES_MAX:,} members")
        row = {
            "plan": plan,
            "bonus_tokens": tokens,
            "lasts_ms": lasts_ms,
            "max_uses": max_uses,
            "uses": 0,
            "redeem_before_ms": redeem_before_ms,
            "made_at_ms": at_ms,
        }
        while True:
            code = f"{self._prefix}-{''.join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))}"
            masked = self._masked(code)
            new = {**row, "code_digest": digest(code), "masked": masked}
            if await self._tables.write(partial(insert_new, into=PROMOTIONS, row=new)):
                return NewPromotion(code, masked)

    async def list(self) -> list[Promotion]:
        """All promotions, the newest first."""
        made = PROMOTIONS.c
        columns = (made[name] for name in Promotion.__dataclass_fields__)
        asked = select(*columns).order_by(made.made_at_ms.desc(), made.code_digest)
        rows = await self._tables.read(lambda connection: connection.execute(asked).all())
        return [Promotion(*row) for row in rows]

    async def redeem(self, user: str, code: str, at_ms: int) -> Redeemed | NotRedeemed:
        """Redeem a code: the promotion and its bonus tokens take effect together, or neither does.

        Who may interleave: the same member, who waits for the lock of their profile; other members with the same code,
        who wait for the lock of its row. So a code is redeemed once by each, and never more often than promised.
        """
        check_user(user)
        found = self._code.fullmatch(code.strip().upper())
        if found is None:
            return "INVALID_CODE"
        code_digest = digest(found[0])

        def work(connection: Connection) -> Redeemed | NotRedeemed:
            profile = locked_profile(connection, user, at_ms)["id"]
            asked = select(PROMOTIONS).where(PROMOTIONS.c.code_digest == code_digest)
            promotion = connection.execute(asked.with_for_update()).first()
            if promotion is None:
                return "INVALID_CODE"
            mine = REDEMPTIONS.c.profile_id == profile, REDEMPTIONS.c.code_digest == code_digest
            if connection.execute(select(REDEMPTIONS.c.plan).where(*mine)).first() is not None:
                return "ALREADY_REDEEMED"
            if promotion.redeem_before_ms is not None and at_ms >= promotion.redeem_before_ms:
                return "CODE_EXPIRED"
            if promotion.uses >= promotion.max_uses:
                return "CODE_USED_UP"
            expires_at_ms = at_ms + promotion.lasts_ms
            connection.execute(
                insert(REDEMPTIONS).values(
                    profile_id=profile,
                    code_digest=code_digest,
                    masked=promotion.masked,
                    plan=promotion.plan,
                    redeemed_at_ms=at_ms,
                    expires_at_ms=expires_at_ms,
                )
            )
            connection.execute(
                update(PROMOTIONS).where(PROMOTIONS.c.code_digest == code_digest).values(uses=PROMOTIONS.c.uses + 1)
            )
            granted = promotion.bonus_tokens
            if granted:
                insert_bonus(connection, profile, f"promotion:{code_digest}", granted, "promotion", at_ms)
            return Redeemed(promotion.masked, promotion.plan, at_ms, expires_at_ms, granted)

        return await self._tables.write(work)

    async def latest_of(self, user: str) -> Redeemed | None:
        """The promotion that a member redeemed last; None: there is none."""
        mine = REDEMPTIONS.c
        asked = (
            select(mine.masked, mine.plan, mine.redeemed_at_ms, mine.expires_at_ms)
            .join(PROFILES, PROFILES.c.id == mine.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(mine.redeemed_at_ms.desc(), mine.expires_at_ms.desc())
            .limit(1)
        )
        row = await self._tables.read(lambda connection: connection.execute(asked).first())
        return None if row is None else Redeemed(*row)

    def _masked(self, code: str) -> str:
        return f"{self._prefix}-{'*' * (CODE_LENGTH - _SHOWN)}{code[-_SHOWN:]}"
