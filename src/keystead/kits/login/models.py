"""The values of the login kit, with the names that their fields have in the stored JSON."""

# ruff: noqa: N815 - the document mixes two styles of names, and they are kept as they are stored

from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from keystead.parts.refresh import RefreshRecord
from keystead.schema import EpochMs, OmittedIfNone, Sealed

DISCORD: Final = "discord"  # the provider of the document
LoginContext: TypeAlias = Literal["browser", "pwa"]


class Session(BaseModel):
    """Who is logged in, and the provider's tokens for asking it about them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    """the user's id at the provider"""
    name: str
    avatar: str | None
    """the id of the user's picture at the provider"""
    access_token: Sealed[str]
    refresh_token: Sealed[str]
    scope: str
    """what the access token is good for"""
    token_type: str
    """`Bearer`"""
    access_expires_at: EpochMs
    created_at: EpochMs
    last_seen_at: EpochMs
    ver: int = 1
    """goes up by one with each refresh of the tokens"""
    provider: OmittedIfNone[str] = None
    """who the user signed in with; left out for Discord"""
    provider_refused: OmittedIfNone[bool] = None
    """the provider takes the refresh token no more: only a new sign-in there brings tokens"""
    browser: OmittedIfNone[str] = None
    """the browser that signed in, as in `Firefox`"""
    device: OmittedIfNone[str] = None
    """what it ran on, as in `iPhone`"""


class AuthState(BaseModel):
    """What the callback of a login must know of its start."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    verifier: Sealed[str]
    """the PKCE verifier"""
    loginContext: OmittedIfNone[LoginContext] = None
    """where the login began"""
    claimTokenDigest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""
    returnTo: OmittedIfNone[str] = None
    """the path that the user goes to after the login"""
    browserDigest: OmittedIfNone[str] = None
    """SHA-256, in base64url, of the secret in the cookie of the browser in which the login began"""
    nonce: OmittedIfNone[str] = None
    """what the ID token must repeat"""
    issuer: OmittedIfNone[str] = None
    """the issuer that must answer"""
    code: OmittedIfNone[str] = None
    """what the installed app shows, for the user to find it again where the sign-in is confirmed"""


class PendingLogin(BaseModel):
    """A login that waits for its user to say that it is theirs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    name: str
    avatar: str | None
    access_token: Sealed[str]
    refresh_token: Sealed[str]
    scope: str
    token_type: str
    access_expires_at: EpochMs
    loginContext: LoginContext
    browserDigest: str
    """SHA-256, in base64url, of the secret in the cookie of the browser that is asked"""
    claimTokenDigest: OmittedIfNone[str] = None
    returnTo: OmittedIfNone[str] = None
    state: OmittedIfNone[str] = None
    """the digest of the state that the installed app claims the session with"""
    provider: OmittedIfNone[str] = None
    browser: OmittedIfNone[str] = None
    device: OmittedIfNone[str] = None
    code: OmittedIfNone[str] = None
    """what the user must find again; left out where there is nothing to compare"""
    began: OmittedIfNone[bool] = None
    """the login began in the browser that is asked, so that it gets the session; left out where it only helps"""


class TokenRevocation(BaseModel):
    """The provider's tokens of a session that has ended, until the provider has revoked them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    access_token: Sealed[str]
    refresh_token: Sealed[str]
    """empty where the provider gave none"""
    provider: OmittedIfNone[str] = None


class PwaSessionMetadata(BaseModel):
    """How the login went that made the session."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    stateRestoredFromKv: bool
    """whether the browser had lost its cookies, so that the store had to tell the verifier"""


class PwaSession(BaseModel):
    """A session that waits to be claimed by the installed app, after the login took place in a browser."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sid: Sealed[str]
    userId: str
    loginContext: LoginContext
    issuedAt: EpochMs
    metadata: PwaSessionMetadata
    claimTokenDigest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""


class RefreshToken(RefreshRecord):
    """Refresh tokens of a program: all that come of one, each made of the one before."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    sid: str
    """the session that they came of, by the digest in its key"""
