"""The records of the login kit. The document mixes two naming styles, and so does the stored JSON."""

from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from keystead.catalogue import Language
from keystead.kits.camel_model import CamelModel
from keystead.parts.refresh import RefreshRecord
from keystead.schema import EpochMs, OmittedIfNone, Sealed

DISCORD: Final = "discord"  # the provider of the document
LoginContext: TypeAlias = Literal["browser", "pwa"]
Theme: TypeAlias = Literal["system", "light", "dark"]


class Preferences(BaseModel):
    """What a user chose with the switches on each page."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    language: OmittedIfNone[Language] = None
    """the language of pages"""
    theme: OmittedIfNone[Theme] = None
    """the colours of pages"""


class Session(BaseModel):
    """The signed-in user and the provider's tokens."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    """the user's id at the provider"""
    name: str
    avatar: str | None
    """the id of the user's avatar at the provider"""
    access_token: Sealed[str]
    refresh_token: Sealed[str]
    scope: str
    """the scope of the access token"""
    token_type: str
    """`Bearer`"""
    access_expires_at: EpochMs
    created_at: EpochMs
    last_seen_at: EpochMs
    ver: int = 1
    """incremented with each refresh of the tokens"""
    provider: OmittedIfNone[str] = None
    """the sign-in provider; omitted for Discord"""
    provider_refused: OmittedIfNone[bool] = None
    """the provider rejected the refresh token: only a new sign-in yields tokens"""
    browser: OmittedIfNone[str] = None
    """the browser that signed in, such as `Firefox`"""
    device: OmittedIfNone[str] = None
    """the device it ran on, such as `iPhone`"""
    language: OmittedIfNone[Language] = None
    """a copy of the user's preference"""
    theme: OmittedIfNone[Theme] = None
    """a copy of the user's preference"""

    @property
    def preferences(self) -> Preferences:
        return Preferences(language=self.language, theme=self.theme)


class AuthState(CamelModel):
    """The state of a sign-in, from its start to its callback."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    verifier: Sealed[str]
    """the PKCE verifier"""
    login_context: OmittedIfNone[LoginContext] = None
    """where the sign-in started"""
    claim_token_digest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""
    return_to: OmittedIfNone[str] = None
    """the path to redirect to after the sign-in"""
    browser_digest: OmittedIfNone[str] = None
    """SHA-256, in base64url, of the secret in the cookie of the browser that started the sign-in"""
    nonce: OmittedIfNone[str] = None
    """the nonce that the ID token must contain"""
    issuer: OmittedIfNone[str] = None
    """the expected issuer"""
    code: OmittedIfNone[str] = None
    """the code that the installed app shows and the user selects to confirm the sign-in"""


class PendingLogin(CamelModel):
    """A sign-in that waits for its user to confirm it."""

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
    """SHA-256, in base64url, of the secret in the cookie of the browser that must confirm"""
    claim_token_digest: OmittedIfNone[str] = None
    return_to: OmittedIfNone[str] = None
    state: OmittedIfNone[str] = None
    """the digest of the state that the installed app claims the session with"""
    provider: OmittedIfNone[str] = None
    browser: OmittedIfNone[str] = None
    device: OmittedIfNone[str] = None
    code: OmittedIfNone[str] = None
    """the code that the user must select; omitted if there is none to compare"""
    began: OmittedIfNone[bool] = None
    """true if the confirming browser started the sign-in and gets the session; omitted if only the app gets it"""


class TokenRevocation(BaseModel):
    """The provider's tokens of an ended session, until the provider has revoked them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    access_token: Sealed[str]
    refresh_token: Sealed[str]
    """empty if the provider issued none"""
    provider: OmittedIfNone[str] = None


class PwaSessionMetadata(CamelModel):
    """How the sign-in that created the session went."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    state_restored_from_kv: bool
    """whether the browser had lost its cookies, so that the verifier came from the store"""


class PwaSession(CamelModel):
    """A session that the installed app may claim, after its sign-in finished in a browser."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sid: Sealed[str]
    user_id: str
    login_context: LoginContext
    issued_at: EpochMs
    metadata: PwaSessionMetadata
    claim_token_digest: OmittedIfNone[str] = None
    """SHA-256, in base64, of the token that lets the installed app claim the session"""


class RefreshToken(RefreshRecord):
    """A chain of refresh tokens of a program, each the successor of the one before."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    uid: str
    sid: str
    """the session of the chain: the digest in its key"""
