"""Parse the token and userinfo responses of a provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.parts.oauth.oauth_errors import BadAnswer
from keystead.parts.oauth.provider import IdentityFields, Provider

DEFAULT_LIFETIME_S: Final = 3600  # of an access token, if the provider does not say
_LONGEST_LIFETIME_S = 10 * 365 * 86_400
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")  # what a header can contain
_SCOPE = re.compile(r"[\x20-\x7e]{1,4096}")
_LONGEST_ID = 255  # as OpenID Connect bounds `sub`
_LONGEST_NAME = 256
_LONGEST_AVATAR = 2048


@dataclass(frozen=True)
class Tokens:
    """The tokens of a user at a provider. The repr contains no token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    id_token: str | None = field(repr=False)
    scope: str
    token_type: str
    expires_at_ms: int  # of the access token


@dataclass(frozen=True)
class Identity:
    """The user who logged in: id and name at the provider, and picture (a URL, or an id of its own)."""

    id: str
    name: str
    avatar: str | None


def tokens_from(answer: Mapping[str, Any], provider: Provider, now_ms: int, refresh_token: str | None = None) -> Tokens:
    """Parse a token response. `refresh_token` stays in use if there is no new one."""
    token_type = answer.get("token_type")
    if not isinstance(token_type, str) or token_type.lower() != "bearer":
        raise BadAnswer(provider.name, "the token endpoint sent a token that is not of type Bearer")
    scope = answer.get("scope")
    return Tokens(
        access_token=_token(answer, "access_token", provider) or _missing("access_token", provider),
        refresh_token=_token(answer, "refresh_token", provider) or refresh_token,
        id_token=_token(answer, "id_token", provider),
        # RFC 6749, 5.1: omitted if it is what was requested. An invalid scope counts as omitted: it is only stored, and
        # refusing the response would lose a refresh token that replaced the old one.
        scope=scope if isinstance(scope, str) and _SCOPE.fullmatch(scope) else provider.scope,
        token_type="Bearer",  # noqa: S106 - the type of a token, not a token
        expires_at_ms=now_ms + 1000 * _lifetime_s(answer.get("expires_in")),
    )


def _token(answer: Mapping[str, Any], name: str, provider: Provider) -> str | None:
    token = answer.get(name)
    if token is None or token == "":
        return None
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise BadAnswer(provider.name, f"the token endpoint sent an invalid {name}")
    return token


def _missing(name: str, provider: Provider) -> str:
    raise BadAnswer(provider.name, f"the response of the token endpoint has no {name}")


def _lifetime_s(expires_in: object) -> int:
    """Some providers send the number as text, some omit it."""
    try:
        seconds = int(expires_in) if isinstance(expires_in, (int, float, str)) else 0
    except (ValueError, OverflowError):
        seconds = 0
    return min(seconds, _LONGEST_LIFETIME_S) if seconds > 0 else DEFAULT_LIFETIME_S


def identity_from(facts: Mapping[str, Any], fields: IdentityFields, provider: str) -> Identity:
    """Parse the user from a userinfo response, or from the claims of an ID token."""
    id_ = facts.get(fields.id)
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not 0 < len(id_) <= _LONGEST_ID or not id_.isprintable():
        raise BadAnswer(provider, f"the userinfo response has no usable {fields.id!r}")
    names = (facts.get(name) for name in fields.name)
    name = next((text for text in map(_line, names) if text), id_)
    avatar = facts.get(fields.avatar)
    fits = isinstance(avatar, str) and 0 < len(avatar) <= _LONGEST_AVATAR and avatar.isprintable()
    return Identity(id_, name[:_LONGEST_NAME], avatar if fits else None)


def _line(text: object) -> str:
    """A name on one line: invisible characters become spaces."""
    if not isinstance(text, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
