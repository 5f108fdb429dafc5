"""The settings in a Cloudflare KV URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.stores import durations
from keystead.stores.durations import seconds
from keystead.stores.loopback import is_loopback

FORM = "cloudflare-kv://account/namespace"
TOKEN_VARIABLE = "CLOUDFLARE_API_TOKEN"  # noqa: S105 - its name
API = "https://api.cloudflare.com/client/v4"
OPTIONS = ("api", "timeout", "connect_timeout", "write_interval")
WRITE_INTERVAL_S = 1.0  # Cloudflare accepts one write per second for each key
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class CloudflareSettings:
    url: str  # without secrets
    account: str
    namespace: str
    token: str = field(repr=False)
    api: str = API
    timeout: float = field(default_factory=lambda: durations.TIMEOUT_S)
    connect_timeout: float = field(default_factory=lambda: durations.CONNECT_TIMEOUT_S)
    write_interval: float = WRITE_INTERVAL_S

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises BadUrl, whose message has the correct form and never the token."""
        try:
            parts = urlsplit(url)
        except ValueError:  # its text contains the URL, with the token
            raise BadUrl(f"the store URL cannot be read; write {FORM}") from None
        userinfo, at, account = parts.netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        namespace = parts.path.strip("/")
        if parts.fragment or user or not _ID.fullmatch(account) or not _ID.fullmatch(namespace):
            # Not shown: a part of it may be a token that was written in the wrong place.
            raise BadUrl(
                f"write {FORM} with the ids of both, and the token in {TOKEN_VARIABLE} or as "
                "cloudflare-kv://:token@account/namespace"
            )
        token = unquote(password) or os.environ.get(TOKEN_VARIABLE, "")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            problem = "is not a token" if token else "has no token"
            raise BadUrl(f"{FORM} {problem}: set {TOKEN_VARIABLE}, or write cloudflare-kv://:token@account/namespace")
        options: dict[str, Any] = {}
        for name, text in parse_qsl(parts.query, keep_blank_values=True):
            if name not in OPTIONS:
                raise BadUrl(f"unknown option {name!r}; the options are: {', '.join(OPTIONS)}")
            options[name] = _api(text) if name == "api" else seconds(name, text)
        shown = f"cloudflare-kv://{'***@' if at else ''}{account}/{namespace}"
        return cls(shown, account, namespace, token, **options)

    @property
    def base(self) -> str:
        """The address of the namespace in the API."""
        return f"{self.api}/accounts/{self.account}/storage/kv/namespaces/{self.namespace}"


def _api(text: str) -> str:
    """The address of the API. Raises BadUrl: the token must not travel in plain text through a network."""
    parts = urlsplit(text)
    is_private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not parts.hostname or parts.query or parts.fragment or parts.username or not is_private:
        raise BadUrl(f"api must be an address such as {API}; http:// is for this machine only")
    return text.rstrip("/")
