"""Consents: which version of what a member agreed to, and when. They are added, and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from sqlalchemy import Connection, func, select

from keystead.errors import BadValue
from keystead.kits.membership.service.ledger import check_user, locked_profile
from keystead.kits.membership.service.tables import CONSENTS, PROFILES
from keystead.parts.tables import Tables, insert_new

ConsentType: TypeAlias = Literal["privacy_policy", "terms_of_service"]
CONSENTS_MAX: Final = 200  # of one member
CONSENT_TYPES: Final[tuple[ConsentType, ...]] = get_args(ConsentType)


@dataclass(frozen=True)
class Consent:
    """What a member agreed to. `accepted_at_ms` is what their application said, `recorded_at_ms` when it came."""

    consent_type: ConsentType
    version: str
    accepted_at_ms: int
    recorded_at_ms: int
    client_version: str | None = None


class Consents:
    """The consents of members. Each operation is one transaction."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def record(self, user: str, consent: Consent) -> bool:
        """Keep a consent. False: the member agreed to this version before, and that stands.

        Raises BadValue where there are too many: versions come from applications, and anybody can write one.
        """
        check_user(user)
        row = {name: getattr(consent, name) for name in Consent.__dataclass_fields__}

        def work(connection: Connection) -> bool:
            profile = locked_profile(connection, user, consent.recorded_at_ms)["id"]
            mine = select(func.count()).select_from(CONSENTS).where(CONSENTS.c.profile_id == profile)
            is_new = insert_new(connection, CONSENTS, {"profile_id": profile, **row})
            if is_new and connection.execute(mine).scalar_one() > CONSENTS_MAX:
                raise BadValue(f"a member agrees to {CONSENTS_MAX} versions at most")  # and it is taken back
            return is_new

        return await self._tables.write(work)

    async def latest_of(self, user: str) -> dict[ConsentType, Consent]:
        """What a member agreed to last, of each type that there is."""
        columns = (CONSENTS.c[name] for name in Consent.__dataclass_fields__)
        asked = (
            select(*columns)
            .join(PROFILES, PROFILES.c.id == CONSENTS.c.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(CONSENTS.c.recorded_at_ms, CONSENTS.c.version)
        )
        rows = await self._tables.read(lambda connection: connection.execute(asked).all())
        return {row.consent_type: Consent(*row) for row in rows}
