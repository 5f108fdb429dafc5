"""The key document that Python and the Worker share."""

from typing import Literal

from pydantic import BaseModel

from keystead import Keyspace, Value, after


class Membership(BaseModel):
    plan: Literal["free", "pro"]
    seats: int = 1


class AppKeys(Keyspace):
    """Memberships at the edge; sessions where a logout counts at once."""

    membership = Value(
        "membership:{user<=120}",
        Membership,
        lifetime=after("10m"),
        role="cache",
        doc="The plan of a user. A Worker reads it from Cloudflare KV, up to a minute behind.",
    )
    session = Value("session:{id:token}", str, lifetime=after("1d"), doc="The user of a session.")
