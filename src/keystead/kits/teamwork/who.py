"""Who asks a route of the kit: whoever is signed in at this server, or a program with an access token of this kit.

Who      anybody of these, in a team or not
Member   somebody who is in a team; 403 for others
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from keystead.errors import StoreError
from keystead.http.bearer import bearer_token, retry_after_s
from keystead.http.dependencies import BearerScheme, bearer
from keystead.http.refusals import Refusal
from keystead.kits.identity import SignedInUser, identify_again, sign_in_of
from keystead.kits.kit import service_of
from keystead.kits.signed_in import not_signed_in, signed_in
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service import Teamwork
from keystead.kits.teamwork.service.people import NO_TEAM
from keystead.kits.teamwork.service.streams import Still
from keystead.parts.admission import Admitted
from keystead.parts.cache import LoadFailed
from keystead.parts.jwt import Denied

Serving = Annotated[Teamwork, Depends(service_of("teamwork"))]

_by_token = bearer(lambda request: request.app.state.kits["teamwork"].admission, realm="teamwork")


class _Who(BearerScheme):
    """What FastAPI calls, and reads for its document: a route takes a bearer token, or the cookie of a session."""

    async def __call__(self, connection: HTTPConnection, teamwork: Serving) -> Admitted[UserSession]:
        user = await signed_in(connection)
        if user is not None:
            found = await self._find_user(user, teamwork)
            if found is not None:
                return found
        elif bearer_token(connection) is None and sign_in_of(connection.scope) is not None:
            raise not_signed_in(connection, "NO_TOKEN")
        return await _by_token(connection)

    async def _find_user(self, user: SignedInUser, teamwork: Teamwork) -> Admitted[UserSession] | None:
        try:
            return await teamwork.admit_identity(user.subject, user.name)
        except LoadFailed as failed:
            sentence = "Who you are cannot be looked up now; try again later."
            raise Refusal(503, "USER_UNAVAILABLE", sentence, retry_after_s=retry_after_s(failed)) from None


Who = Annotated[Admitted[UserSession], Depends(_Who())]


async def _member(who: Who) -> Admitted[UserSession]:
    if who.user.team_id == NO_TEAM:
        sentence = "You are in no team yet: create one, or accept an invitation, at /teamwork."
        raise Refusal(403, "NO_TEAM", sentence)
    return who


Member = Annotated[Admitted[UserSession], Depends(_member)]


def still_there(connection: HTTPConnection, who: Admitted[UserSession], teamwork: Teamwork) -> Still:
    """A check for long streams: whether the user is still signed in; None: it cannot be checked now."""

    async def by_session() -> bool | None:
        try:
            user = await identify_again(connection)
        except Refusal:
            return False
        except StoreError:
            return None
        return user is not None and user.subject == who.claims.get("identity")

    async def by_token() -> bool | None:
        try:
            found = await teamwork.admission.admitted(bearer_token(connection) or "")
        except (StoreError, LoadFailed):
            return None
        return None if isinstance(found, Denied) and found.reason == "unavailable" else bool(found)

    return by_session if has_session(who) else by_token


def has_session(who: Admitted[UserSession]) -> bool:
    """Whether the user has a session of this server, and no token of this kit to revoke."""
    return "identity" in who.claims
