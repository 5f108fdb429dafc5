"""What a token may do: read or write, which keys, and whether scripts and foreign commands pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from keystead.errors import BadValue
from keystead.gateway.gateway_keys import RESERVED, GatewayToken
from keystead.gateway.rest_replies import RespError
from keystead.schema import Keyspace
from keystead.schema.family_lookup import name_of
from keystead.schema.pattern import Pattern
from keystead.schema.placeholder_types import PlaceholderType
from keystead.stores.globs import compile_glob

# Without a key, so that limits of keys do not apply to them. SCAN and KEYS only list the keys of the token.
_HARMLESS: Final = frozenset({"TIME", "SCAN", "KEYS", "PING", "ECHO"})
_LISTING: Final = frozenset({"SCAN", "KEYS"})


class Permission:
    """The rights of one token, compiled for the check of each command."""

    def __init__(self, token_id: str, token: GatewayToken, families: Mapping[str, Pattern]) -> None:
        """`families`: the patterns of the gateway's keyspaces, by name, such as `ShopKeys.cart`."""
        self.token_id = token_id
        self.may_write = token.access != "read"
        self.may_run_scripts = token.access in ("scripts", "admin")
        self.is_admin = token.access == "admin"
        self.is_limited = bool(token.families or token.values or token.keys)
        self._globs = [compile_glob(glob.encode()) for glob in token.keys]
        self._by_family = bool(token.families or token.values)
        self._patterns = [families[name] for name in token.families or families if name in families]
        self._values = token.values

    def refusal(self, name: str, writes: bool, keys: Sequence[bytes]) -> RespError | None:
        """Why a command of the language is refused; None: it may run. The channel of PUBLISH counts as its key."""
        if (writes or name in _LISTING) and not self.may_write:  # as with read-only tokens of Upstash
            return refuse_command(name)
        for key in keys:
            if key.startswith(RESERVED) or (self.is_limited and not self.may_use(key)):
                return RespError("NOPERM No permissions to access a key")
        if self.is_limited and not keys and name not in _HARMLESS:
            return refuse_command(name)
        return None

    def refuse_channel(self, channel: bytes) -> RespError | None:
        """Why a subscription is refused; None: it is allowed."""
        if channel.startswith(RESERVED) or (self.is_limited and not self.may_use(channel)):
            return RespError("NOPERM No permissions to access a channel")
        return None

    def refuse_foreign(self, name: str, is_script: bool) -> RespError | None:
        """Why a command outside the language is refused; None: it may run."""
        allowed = self.may_run_scripts if is_script else self.is_admin
        return None if allowed else refuse_command(name)

    def may_use(self, key: bytes) -> bool:
        """Whether a key or channel is within the limits of the token."""
        if self._globs and not any(glob.fullmatch(key) for glob in self._globs):
            return False
        return not self._by_family or any(self._is_own(pattern, key) for pattern in self._patterns)

    def _is_own(self, pattern: Pattern, key: bytes) -> bool:
        found: Mapping[str, Any] | None = pattern.parse(key)
        if found is None and pattern.tag is not None:
            found = pattern.parse(key, tagged=True)
        if found is None:
            return False
        return all(name in found and str(found[name]) == value for name, value in self._values.items())

    def visible_keys(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys that a listing shows to this token."""
        return [key for key in keys if not key.startswith(RESERVED) and (not self.is_limited or self.may_use(key))]


def check_limits(families: Sequence[str], values: Mapping[str, str], known: Mapping[str, Pattern]) -> None:
    """Raise BadValue for limits with which a token could use no key. `known`: as for `Permission`."""
    for family in families:
        for name in values.keys() - known[family].names:
            raise BadValue(f"{family} has no placeholder {name!r}, so the token could use none of its keys")
    limited = [known[family] for family in families or known]
    for name, value in values.items():
        _check_value(name, value, [pattern.types[name] for pattern in limited if name in pattern.names])


def _check_value(name: str, value: str, kinds: Sequence[PlaceholderType]) -> None:
    if not kinds:
        raise BadValue(f"no family has the placeholder {name!r}")
    if not any(_can_be(kind, value) for kind in kinds):
        taken = " or ".join(sorted({kind.doc for kind in kinds}))
        raise BadValue(f"{value!r} cannot be the value of {{{name}}}, which takes {taken}")


def _can_be(kind: PlaceholderType, value: str) -> bool:
    try:
        return str(kind.parse(value)) == value
    except Exception:  # a type may raise anything for an unknown text
        return False


def refuse_command(name: str) -> RespError:
    return RespError(f"NOPERM this user has no permissions to run the '{name.lower()}' command or its subcommand")


def patterns_by_name(keyspaces: Sequence[type[Keyspace]]) -> dict[str, Pattern]:
    """The patterns of all families, by name: `ShopKeys.cart`."""
    return {name_of(family): family.pattern for one in keyspaces for family in one.families.values()}
