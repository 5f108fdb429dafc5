"""Promotion codes: bonus tokens for members. Once per member, for a limited number of members."""

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
    lock_profile,
)
from keystead.kits.membership.service.tables import PROFILES, PROMOTIONS, REDEMPTIONS
from keystead.parts.digest import digest
from keystead.parts.tables import Tables, insert_new

# Crockford's base 32: no two characters look alike.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE_LENGTH: Final = 8
USES_MAX: Final = 1_000_000
_SHOWN: Final = 2

RedeemFailure: TypeAlias = Literal["INVALID_CODE", "CODE_EXPIRED", "CODE_USED_UP", "ALREADY_REDEEMED"]


@dataclass(frozen=True)
class NewPromotion:
    """A new promotion. The code is returned only once; the table holds its digest."""

    code: str = field(repr=False)
    masked: str


@dataclass(frozen=True)
class Promotion:
    """A promotion as shown to operators."""

    masked: str
    plan: Plan
    bonus_tokens: int
    max_uses: int
    uses: int
    redeem_before_ms: int | None
    made_at_ms: int


@dataclass(frozen=True)
class Redemption:
    """A promotion code that a member has redeemed."""

    masked: str
    plan: Plan
    redeemed_at_ms: int
    expires_at_ms: int
    bonus_tokens: int = 0


class Promotions:
    """The promotions of the membership kit. Each operation is one transaction. `prefix` begins each code."""

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
        """Create a code for up to `max_uses` members. `bonus_tokens` defaults to the plan's monthly quota."""
        tokens = MONTHLY_TOKENS[plan] if bonus_tokens is None else bonus_tokens
        check_tokens(tokens)
        if not 1 <= max_uses <= USES_MAX:
            raise BadValue(f"max_uses must be from 1 to {USES_MAX:,}")
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
            masked = self._mask(code)
            new = {**row, "code_digest": digest(code), "masked": masked}
            if await self._tables.write(partial(insert_new, into=PROMOTIONS, row=new)):
                return NewPromotion(code, masked)

    async def list(self) -> list[Promotion]:
        """All promotions, newest first."""
        columns = (PROMOTIONS.c[name] for name in Promotion.__dataclass_fields__)
        query = select(*columns).order_by(PROMOTIONS.c.made_at_ms.desc(), PROMOTIONS.c.code_digest)
        rows = await self._tables.read(lambda connection: connection.execute(query).all())
        return [Promotion(*row) for row in rows]

    async def redeem(self, user: str, code: str, at_ms: int) -> Redemption | RedeemFailure:
        """Redeem a code. The redemption and its bonus tokens are one transaction.

        Races: the same member is serialized by the lock on their profile, and other members with the same code by the
        lock on its row. So each member redeems a code once, and at most `max_uses` members do.
        """
        check_user(user)
        found = self._code.fullmatch(code.strip().upper())
        if found is None:
            return "INVALID_CODE"
        code_digest = digest(found[0])

        def work(connection: Connection) -> Redemption | RedeemFailure:
            profile = lock_profile(connection, user, at_ms)["id"]
            query = select(PROMOTIONS).where(PROMOTIONS.c.code_digest == code_digest)
            promotion = connection.execute(query.with_for_update()).first()
            if promotion is None:
                return "INVALID_CODE"
            is_own = REDEMPTIONS.c.profile_id == profile, REDEMPTIONS.c.code_digest == code_digest
            if connection.execute(select(REDEMPTIONS.c.plan).where(*is_own)).first() is not None:
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
            return Redemption(promotion.masked, promotion.plan, at_ms, expires_at_ms, granted)

        return await self._tables.write(work)

    async def latest_of(self, user: str) -> Redemption | None:
        """The promotion that a member redeemed last; None if there is none. `bonus_tokens` is 0 in it."""
        columns = REDEMPTIONS.c
        query = (
            select(columns.masked, columns.plan, columns.redeemed_at_ms, columns.expires_at_ms)
            .join(PROFILES, PROFILES.c.id == columns.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(columns.redeemed_at_ms.desc(), columns.expires_at_ms.desc())
            .limit(1)
        )
        row = await self._tables.read(lambda connection: connection.execute(query).first())
        return None if row is None else Redemption(*row)

    def _mask(self, code: str) -> str:
        return f"{self._prefix}-{'*' * (CODE_LENGTH - _SHOWN)}{code[-_SHOWN:]}"
