"""The values of the login kit. The document mixes two styles of names, and the stored JSON keeps them."""

from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from keystead.kits.camel_model import CamelModel
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


class AuthState(CamelModel):
    """What the callback of a login must know of its start."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    verifier: Sealed[str]
    """the PKCE verifier"""
    login_context: OmittedIfNone[LoginContext] = None
    """where the login began"""
    claim_token_digest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""
    return_to: OmittedIfNone[str] = None
    """the path that the user goes to after the login"""
    browser_digest: OmittedIfNone[str] = None
    """SHA-256, in base64url, of the secret in the cookie of the browser in which the login began"""
    nonce: OmittedIfNone[str] = None
    """what the ID token must repeat"""
    issuer: OmittedIfNone[str] = None
    """the issuer that must answer"""
    code: OmittedIfNone[str] = None
    """what the installed app shows, for the user to find it again where the sign-in is confirmed"""


class PendingLogin(CamelModel):
    """A login that waits for its user to say that it is theirs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    name: str
    avatar: str | None
    access_token: Sealed[str] = Field(alias="access_token")
    refresh_token: Sealed[str] = Field(alias="refresh_token")
    scope: str
    token_type: str = Field(alias="token_type")
    access_expires_at: EpochMs = Field(alias="access_expires_at")
    login_context: LoginContext
    browser_digest: str
    """SHA-256, in base64url, of the secret in the cookie of the browser that is asked"""
    claim_token_digest: OmittedIfNone[str] = None
    return_to: OmittedIfNone[str] = None
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


class PwaSessionMetadata(CamelModel):
    """How the login went that made the session."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    state_restored_from_kv: bool
    """whether the browser had lost its cookies, so that the store had to tell the verifier"""


class PwaSession(CamelModel):
    """A session that waits to be claimed by the installed app, after the login took place in a browser."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sid: Sealed[str]
    user_id: str
    login_context: LoginContext
    issued_at: EpochMs
    metadata: PwaSessionMetadata
    claim_token_digest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""


class RefreshToken(RefreshRecord):
    """Refresh tokens of a program: all that come of one, each made of the one before."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    sid: str
    """the session that they came of, by the digest in its key"""
