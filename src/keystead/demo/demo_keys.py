"""The key document of the demo provider."""

from pydantic import BaseModel, ConfigDict, Field

from keystead.schema import EpochMs, Keyspace, Value, after, until

_AUTHORIZE, _TOKEN = "/demo/authorize", "/demo/token"
_USERINFO, _REVOKE = "/demo/userinfo", "/demo/revoke"
_IDENTITY, _PLEDGES = "/demo/patreon/identity", "/demo/patreon"


class DemoCode(BaseModel):
    """The authorization request of a code. It must match when the code is exchanged."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    redirect_uri: str
    challenge: str
    """the PKCE challenge, S256"""
    client: str = "demo"
    """the application that requested it"""


class DemoGrant(BaseModel):
    """A sign-in. Its codes and tokens are valid only while this record exists."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """the id of the person"""
    name: str
    scope: str
    expires_at: EpochMs
    client: str = "demo"
    """the application they signed in to"""


class DemoPledge(BaseModel):
    """The monthly pledge of a person."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    cents: int = Field(ge=0)
    """per month"""


class DemoKeys(Keyspace):
    """The demo provider of development mode: sign-ins, their codes and tokens, and pledges."""

    source = "Keystead's demo provider"

    grant = Value(
        "demo:grant:{grant:token}",
        DemoGrant,
        lifetime=until("expires_at", at_most="30d"),
        doc="A sign-in. It lives a minute until its code is exchanged, then 30 days. Deleting it revokes its tokens.",
        used_by=(_AUTHORIZE, _TOKEN, _USERINFO, _IDENTITY, _REVOKE),
    )
    code = Value(
        "demo:code:{code:token}",
        DemoCode,
        lifetime=after("1m"),
        doc="A single-use authorization code.",
        used_by=(_AUTHORIZE, _TOKEN),
    )
    access = Value(
        "demo:access:{token:token}",
        str,
        lifetime=after("1h"),
        doc="An access token: its scope.",
        used_by=(_TOKEN, _USERINFO, _IDENTITY),
    )
    refresh = Value(
        "demo:refresh:{token:token}",
        str,
        lifetime=after("30d"),
        doc="A single-use refresh token: its scope.",
        used_by=(_TOKEN,),
    )
    pledge = Value(
        "demo:pledge:{person:token}",
        DemoPledge,
        lifetime=after("30d"),
        doc="The monthly pledge of a person, for the stand-in for Patreon. Without one, the initial pledge applies.",
        used_by=(_AUTHORIZE, _IDENTITY, _PLEDGES),
    )
