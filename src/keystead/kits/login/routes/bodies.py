"""Request and response bodies of the login kit."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.visit import Ok


class StartedAnswer(Ok):
    authorize_url: str
    app_authorize_url: str | None
    state: str


class StartedInAppAnswer(StartedAnswer):
    code: str = Field(description="For the app to show: the user selects it to confirm the sign-in.")


class FinishedAnswer(Ok):
    redirect_to: str
    login_context: Literal["browser", "pwa"]


class ClaimedAnswer(Ok):
    claimed: Literal[True] = True


class User(BaseModel):
    id: str
    name: str
    avatar: str | None


class LoggedInAnswer(Ok):
    logged_in: Literal[True] = True
    user: User


class ProviderRefusedAnswer(LoggedInAnswer):
    provider_sign_in_required: Literal[True] = True
    start_url: str


class LoggedOutAnswer(CamelModel):
    ok: Literal[False] = False
    logged_in: Literal[False] = False


class SessionAnswer(CamelModel):
    id: str
    current: bool
    created_at: int
    last_seen_at: int
    ends_at: int
    browser: str | None = Field(description="Firefox, Chrome, Safari, …; null if unknown.")
    device: str | None = Field(description="Windows, iPhone, Android, …; null if unknown.")


class SessionsAnswer(Ok):
    sessions: list[SessionAnswer]


class EndedAnswer(Ok):
    ended: int


class ProvidersAnswer(Ok):
    providers: list[str]


class TokenPairAnswer(CamelModel):
    access_token: str
    refresh_token: str
    expires_in: int
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105


class RefreshBody(CamelBody):
    refresh_token: str = Field(min_length=1, max_length=1024)


class ClaimBody(BaseModel):
    state: str | None = None


class CsrfBody(BaseModel):
    csrf: str | None = Field(None, description="The token from /api/auth/csrf; or send it in the header x-csrf-token.")
