"""The settings in an Upstash URL, or in the environment that Upstash and Vercel fill in."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.stores import durations
from keystead.stores.durations import seconds
from keystead.stores.loopback import is_loopback

ENVIRONMENT: Final = "upstash+env"
OPTIONS: Final = "timeout, connect_timeout, read_only, max_request, durability, evicts, ca, unencrypted"
Durability: TypeAlias = Literal["disk", "seconds", "memory"]
_DURABILITIES: Final[tuple[Durability, ...]] = ("disk", "seconds", "memory")
FORM: Final = (
    "write upstash+https://:TOKEN@host, or upstash+env:// with the variables UPSTASH_REDIS_REST_URL and _TOKEN"
)
# The names of the URL, the token and the read-only token of one database, as Upstash and Vercel export them.
_VARIABLES: Final = (
    ("UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN", ""),
    ("KV_REST_API_URL", "KV_REST_API_TOKEN", "KV_REST_API_READ_ONLY_TOKEN"),
)
# The smallest limit of Upstash's plans; a larger request is refused there.
MAX_REQUEST_BYTES: Final = 1 << 20
_SIZE: Final = re.compile(r"(\d{1,6})(kb|mb)")


@dataclass(frozen=True)
class UpstashSettings:
    """`path`: what comes before `/pipeline`, without a slash at its end."""

    url: str  # without secrets
    host: str
    port: int
    token: str = field(repr=False)
    path: str = ""
    tls: ssl.SSLContext | None = None
    read_only: bool = False
    max_request_bytes: int = MAX_REQUEST_BYTES
    # Replicas of Upstash follow asynchronously, so that the last writes may be lost when a leader fails.
    durability: Durability = "seconds"
    evicts: bool = False
    timeout: float = field(default_factory=lambda: durations.TIMEOUT_S)
    connect_timeout: float = field(default_factory=lambda: durations.CONNECT_TIMEOUT_S)

    @property
    def address(self) -> str:
        """For errors."""
        return self.host if self.port in (80, 443) else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, url: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Parse a URL. Raises BadUrl, whose message never contains the token."""
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True))
            read_only = _yes(options, "read_only")
            if parts.scheme == ENVIRONMENT:
                if parts.netloc or parts.path.strip("/"):
                    raise BadUrl("upstash+env:// takes no host; the environment names it")
                rest_url, token = _from_environment(environment, read_only)
                parts = urlsplit(f"upstash+{rest_url}")
            else:
                token = unquote(parts.password or parts.username or "")
            host, port = parts.hostname, parts.port
        except ValueError:  # its text contains the URL, with the token
            raise BadUrl(f"the store URL cannot be read; {FORM}") from None
        secure = parts.scheme == "upstash+https"
        if parts.scheme not in ("upstash+https", "upstash+http") or not host:
            raise BadUrl(f"the URL of an Upstash database needs https:// and a host; {FORM}")
        if not token or parts.fragment or "@" in parts.path:
            raise BadUrl(f"the token of the database is missing, or has / ? # or @ in plain; {FORM}")
        if not token.isascii() or any(character <= " " for character in token):
            raise BadUrl("the token of the database has spaces or other characters that a token cannot have")
        may_be_read = _yes(options, "unencrypted")
        if not (secure or may_be_read or is_loopback(host)):
            raise BadUrl(
                f"http:// would send the token to {host} in plain text; use https://, or unencrypted=yes in a network "
                "that you trust"
            )
        limits = {name: seconds(name, options.pop(name)) for name in ("timeout", "connect_timeout") if name in options}
        settings = cls(
            url=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
            host=host,
            port=port or (443 if secure else 80),
            token=token,
            path=parts.path.rstrip("/"),
            tls=_tls_context(options.pop("ca", None)) if secure else None,
            read_only=read_only,
            durability=_durability(options.pop("durability", "seconds")),
            evicts=_yes(options, "evicts"),
            max_request_bytes=_size(options.pop("max_request")) if "max_request" in options else MAX_REQUEST_BYTES,
            **limits,
        )
        if options:
            raise BadUrl(f"unknown option {next(iter(options))!r}; the options are: {OPTIONS}")
        return settings


def _from_environment(environment: Mapping[str, str], read_only: bool) -> tuple[str, str]:
    """The URL and the token of the first database that is named. For reading, its read-only token if there is one."""
    for url_name, token_name, reading_name in _VARIABLES:
        url = environment.get(url_name, "")
        if not url:
            continue
        token = (read_only and environment.get(reading_name)) or environment.get(token_name, "")
        if not token:
            raise BadUrl(f"{url_name} is set, but {token_name} is not")
        if not url.startswith(("https://", "http://")):
            raise BadUrl(f"{url_name} must start with https://; it is the REST URL of the database, not redis://")
        return url, token
    raise BadUrl("upstash+env:// needs UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN in the environment")


def _yes(options: dict[str, str], name: str) -> bool:
    given = options.pop(name, "no")
    if given not in ("yes", "no"):
        raise BadUrl(f"{name} must be yes or no")
    return given == "yes"


def _durability(text: str) -> Durability:
    for known in _DURABILITIES:
        if text == known:
            return known
    raise BadUrl(f"durability must be {', '.join(_DURABILITIES[:-1])} or {_DURABILITIES[-1]}")


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.lower())
    if not found or (size := int(found[1]) << (20 if found[2] == "mb" else 10)) < 256 << 10:
        raise BadUrl("max_request must be a size of 256kb or more, such as max_request=10mb")
    return size


def _tls_context(ca: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise BadUrl(f"the certificates of the URL cannot be read: {error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context
