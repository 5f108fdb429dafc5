"""The settings in a Memcached URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.stores import durations
from keystead.stores.durations import seconds

FORM = "memcached://host:11211,host2:11211/prefix"
DEFAULT_PORT = 11_211
DEFAULT_PREFIX = "keystead"
LONGEST_PREFIX = 100  # of the 250 bytes that a key of Memcached has
OPTIONS = ("timeout", "connect_timeout")


class MemcachedAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class MemcachedSettings:
    url: str  # without secrets
    addresses: list[MemcachedAddress]
    prefix: bytes = b"keystead:"  # of every key of this store: a server has no databases
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout: float = field(default_factory=lambda: durations.TIMEOUT_S)
    connect_timeout: float = field(default_factory=lambda: durations.CONNECT_TIMEOUT_S)

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises BadUrl, whose message has the correct form and never the password."""
        try:
            parts = urlsplit(url)
        except ValueError:  # its text contains the URL, with the password
            raise BadUrl(f"the store URL cannot be read; write {FORM}") from None
        userinfo, at, hosts = parts.netloc.rpartition("@")
        # Checked first: an apparent port or prefix may be the second half of a password.
        if parts.fragment or "@" in parts.path or "@" in userinfo or ("@" in parts.query and not at):
            raise BadUrl("write / ? # and @ within a user or password of the URL as %2F %3F %23 and %40")
        user, _, password = userinfo.partition(":")
        addresses = [_address(host) for host in hosts.split(",")]
        if len(set(addresses)) < len(addresses):
            raise BadUrl("duplicate server in the URL; name each once")
        prefix = unquote(parts.path.strip("/")) or DEFAULT_PREFIX
        if len(prefix.encode()) > LONGEST_PREFIX or not prefix.isprintable() or " " in prefix:
            raise BadUrl(f"a prefix must be printable, without spaces, at most {LONGEST_PREFIX} bytes: write {FORM}")
        durations: dict[str, float] = {}
        for name, text in parse_qsl(parts.query, keep_blank_values=True):
            if name not in OPTIONS:
                raise BadUrl(f"unknown option {name!r}; the options are: {', '.join(OPTIONS)}")
            durations[name] = seconds(name, text)
        return cls(
            url=f"{parts.scheme}://{'***@' if at else ''}{hosts}{parts.path}",
            addresses=addresses,
            prefix=prefix.encode() + b":",
            user=unquote(user) or None,
            password=unquote(password) or None,
            **durations,
        )


def _address(text: str) -> MemcachedAddress:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        # Not shown: it may be a password whose host is missing.
        raise BadUrl(f"the port is not a number from 1 to 65535; write {FORM}")
    return MemcachedAddress(host or "127.0.0.1", int(port) if port else DEFAULT_PORT)
