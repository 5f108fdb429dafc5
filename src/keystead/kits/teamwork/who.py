"""Authentication of the kit's routes: a session of this server, or an access token of this kit.

Who      any authenticated user
Member   a user who is in a team; others get 403
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
from keystead.kits.teamwork.service.streams import SignInCheck
from keystead.parts.admission import Admitted
from keystead.parts.cache import LoadFailed
from keystead.parts.jwt import Denied

Service = Annotated[Teamwork, Depends(service_of("teamwork"))]

_authenticate_token = bearer(lambda request: request.app.state.kits["teamwork"].admission, realm="teamwork")


class _Authentication(BearerScheme):
    """A FastAPI dependency, also for the OpenAPI document: a bearer token, or a session cookie."""

    async def __call__(self, connection: HTTPConnection, teamwork: Service) -> Admitted[UserSession]:
        user = await signed_in(connection)
        if user is not None:
            found = await self._find_user(user, teamwork)
            if found is not None:
                return found
        elif bearer_token(connection) is None and sign_in_of(connection.scope) is not None:
            raise not_signed_in(connection, "NO_TOKEN")
        return await _authenticate_token(connection)

    async def _find_user(self, user: SignedInUser, teamwork: Teamwork) -> Admitted[UserSession] | None:
        try:
            return await teamwork.admit_identity(user.subject, user.name)
        except LoadFailed as failed:
            sentence = "Your user cannot be loaded right now; try again later."
            raise Refusal(503, "USER_UNAVAILABLE", sentence, retry_after_s=retry_after_s(failed)) from None


Who = Annotated[Admitted[UserSession], Depends(_Authentication())]


async def _require_member(who: Who) -> Admitted[UserSession]:
    if who.user.team_id == NO_TEAM:
        sentence = "You are not in a team yet: create one, or accept an invitation, at /teamwork."
        raise Refusal(403, "NO_TEAM", sentence)
    return who


Member = Annotated[Admitted[UserSession], Depends(_require_member)]


def sign_in_check(connection: HTTPConnection, who: Admitted[UserSession], teamwork: Teamwork) -> SignInCheck:
    """A check for long streams: whether the user is still signed in; None: it cannot be checked now."""

    async def check_session() -> bool | None:
        try:
            user = await identify_again(connection)
        except Refusal:
            return False
        except StoreError:
            return None
        return user is not None and user.subject == who.claims.get("identity")

    async def check_token() -> bool | None:
        try:
            found = await teamwork.admission.admitted(bearer_token(connection) or "")
        except (StoreError, LoadFailed):
            return None
        return None if isinstance(found, Denied) and found.reason == "unavailable" else bool(found)

    return check_session if has_session(who) else check_token


def has_session(who: Admitted[UserSession]) -> bool:
    """Whether the user is signed in by a session of this server, not by a token of this kit."""
    return "identity" in who.claims
