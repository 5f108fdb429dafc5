"""The key document of the gateway: its tokens, and who created and revoked them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from keystead.parts.apikeys import IssuedSecret
from keystead.parts.audit import AuditEntry
from keystead.schema import Keyspace, Log, SortedSet, Value, never

Access = Literal["read", "write", "scripts", "admin"]

RESERVED = b"keystead:gateway:"  # no client reaches keys with this prefix; only an administrator may


class GatewayToken(IssuedSecret):
    """A token of the gateway, as it is stored: with a digest of the secret, not the secret."""

    access: Access
    """`read`; `write`; `scripts`, which adds EVAL; `admin`, which passes any command through to Redis or Valkey"""
    families: list[str] = Field(default_factory=list)
    """the families it is limited to, such as `ShopKeys.cart`; empty: all keys"""
    values: dict[str, str] = Field(default_factory=dict)
    """the values that placeholders must have in its keys, such as `{"uid": "42"}`"""
    keys: list[str] = Field(default_factory=list)
    """the glob patterns that its keys must match, such as `cart:42:*`; empty: all keys"""


class GatewayKeys(Keyspace):
    """The gateway: tokens of REST clients, and the audit log of their creation and revocation."""

    tokens = SortedSet(
        "keystead:gateway:tokens",
        str,
        lifetime=never("emptied as tokens are revoked"),
        role="gateway",
        doc="The ids of all tokens, the oldest first.",
        used_by=("keystead gateway token",),
    )
    token = Value(
        "keystead:gateway:token:{id:alnum}",
        GatewayToken,
        lifetime=never("removed when it is revoked"),
        role="gateway",
        listed_in=tokens.by(score="made_ms"),
        doc="What a token may do, stored under the public part of the token. The secret part is stored as a digest.",
        used_by=("keystead gateway",),
    )
    audit = Log(
        "keystead:gateway:audit",
        AuditEntry,
        keep=10_000,
        lifetime=never("bounded by `keep`"),
        role="gateway",
        doc="Which token was created or revoked, when and by whom.",
        used_by=("keystead gateway token",),
    )
