"""The key document of the demo provider."""

from pydantic import BaseModel, ConfigDict

from keystead.schema import EpochMs, Keyspace, Value, after, until

_AUTHORIZE, _TOKEN = "/demo/authorize", "/demo/token"
_USERINFO, _REVOKE = "/demo/userinfo", "/demo/revoke"


class DemoCode(BaseModel):
    """What must be the same when a code is exchanged as it was when it was asked for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    redirect_uri: str
    challenge: str
    """the PKCE challenge, S256"""


class DemoGrant(BaseModel):
    """That somebody signed in. All codes and tokens of this sign-in are good only as long as it is there."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """who signed in"""
    name: str
    scope: str
    expires_at: EpochMs


class DemoKeys(Keyspace):
    """The demo provider of development mode: who signed in there, and the codes and tokens that came of it."""

    source = "Keystead's demo provider"

    grant = Value(
        "demo:grant:{grant:token}",
        DemoGrant,
        lifetime=until("expires_at", at_most="30d"),
        doc="A sign-in: a minute until its code is exchanged, 30 days after that. To delete it is to revoke it.",
        used_by=(_AUTHORIZE, _TOKEN, _USERINFO, _REVOKE),
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
        used_by=(_TOKEN, _USERINFO),
    )
    refresh = Value(
        "demo:refresh:{token:token}",
        str,
        lifetime=after("30d"),
        doc="A refresh token that can be used once: its scope.",
        used_by=(_TOKEN,),
    )
