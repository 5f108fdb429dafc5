"""Consents: which document version a member accepted, and when. Rows are inserted, never changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias, get_args

from sqlalchemy import Connection, func, select

from keystead.errors import BadValue
from keystead.kits.membership.service.ledger import check_user, lock_profile
from keystead.kits.membership.service.tables import CONSENTS, PROFILES
from keystead.parts.tables import Tables, insert_new

ConsentType: TypeAlias = Literal["privacy_policy", "terms_of_service"]
CONSENTS_MAX: Final = 200  # of one member
CONSENT_TYPES: Final[tuple[ConsentType, ...]] = get_args(ConsentType)


@dataclass(frozen=True)
class Consent:
    """A document version that a member accepted.

    accepted_at_ms   as the application reported it
    recorded_at_ms   when the server received it
    """

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
        """Record a consent. False if the member had accepted this version before; the first record stays.

        Raises BadValue above `CONSENTS_MAX` versions: clients choose the version, so their number must be bounded.
        """
        check_user(user)

        def work(connection: Connection) -> bool:
            profile = lock_profile(connection, user, consent.recorded_at_ms)["id"]
            count = select(func.count()).select_from(CONSENTS).where(CONSENTS.c.profile_id == profile)
            is_new = insert_new(connection, CONSENTS, {"profile_id": profile, **asdict(consent)})
            if is_new and connection.execute(count).scalar_one() > CONSENTS_MAX:
                raise BadValue(f"a member can accept at most {CONSENTS_MAX} versions")  # rolls the insert back
            return is_new

        return await self._tables.write(work)

    async def latest_of(self, user: str) -> dict[ConsentType, Consent]:
        """The latest consent of a member for each type. A type without one is absent."""
        columns = (CONSENTS.c[name] for name in Consent.__dataclass_fields__)
        query = (
            select(*columns)
            .join(PROFILES, PROFILES.c.id == CONSENTS.c.profile_id)
            .where(PROFILES.c.patreon_user_id == user)
            .order_by(CONSENTS.c.recorded_at_ms, CONSENTS.c.version)
        )
        rows = await self._tables.read(lambda connection: connection.execute(query).all())
        return {row.consent_type: Consent(*row) for row in rows}
