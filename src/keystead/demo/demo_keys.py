"""The key document of the demo provider."""

from pydantic import BaseModel, ConfigDict, Field

from keystead.schema import EpochMs, Keyspace, Value, after, until

_AUTHORIZE, _TOKEN = "/demo/authorize", "/demo/token"
_USERINFO, _REVOKE = "/demo/userinfo", "/demo/revoke"
_IDENTITY, _PLEDGES = "/demo/patreon/identity", "/demo/patreon"


class DemoCode(BaseModel):
    """What must match when a code is exchanged: the request that it was issued for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    redirect_uri: str
    challenge: str
    """the PKCE challenge, S256"""
    client: str = "demo"
    """which application asked"""


class DemoGrant(BaseModel):
    """A sign-in. Its codes and tokens are valid only while this record exists."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """who signed in"""
    name: str
    scope: str
    expires_at: EpochMs
    client: str = "demo"
    """which application they signed in for"""


class DemoPledge(BaseModel):
    """Who pays for a membership, and how much."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    cents: int = Field(ge=0)
    """a month"""


class DemoKeys(Keyspace):
    """The demo provider of development mode: sign-ins, the codes and tokens that came of them, and who pays what."""

    source = "Keystead's demo provider"

    grant = Value(
        "demo:grant:{grant:token}",
        DemoGrant,
        lifetime=until("expires_at", at_most="30d"),
        doc="A sign-in: a minute until its code is exchanged, 30 days after that. To delete it is to revoke it.",
        used_by=(_AUTHORIZE, _TOKEN, _USERINFO, _IDENTITY, _REVOKE),
    )
    code = Value(
        "demo:code:{code:token}",
        DemoCode,
        lifetime=after("1m"),
        doc="A code that can be exchanged once.",
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
        doc="A refresh token that can be used once: its scope.",
        used_by=(_TOKEN,),
    )
    pledge = Value(
        "demo:pledge:{person:token}",
        DemoPledge,
        lifetime=after("30d"),
        doc="What somebody pays a month, where the demo provider stands in for Patreon. Who has none pays what they "
        "paid at first.",
        used_by=(_AUTHORIZE, _IDENTITY, _PLEDGES),
    )
