"""The settings in the URL of a database server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.stores import durations
from keystead.stores.durations import seconds

OPTIONS = "timeout, connect_timeout, pool, socket, tls, ca, cert, key, verify"
MOST_CONNECTIONS = 100


@dataclass(frozen=True)
class DatabaseSettings:
    url: str  # without secrets
    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    socket: str | None = None  # a Unix socket, instead of host and port
    tls: Mapping[str, Any] = field(default_factory=dict, repr=False)  # options of the driver
    timeout: float = field(default_factory=lambda: durations.TIMEOUT_S)
    connect_timeout: float = field(default_factory=lambda: durations.CONNECT_TIMEOUT_S)
    pool: int = 4

    @classmethod
    def of(cls, url: str, *, port: int, tls: TlsReader) -> Self:
        """Parse a URL. Raises BadUrl, whose message has the correct form and never the password."""
        scheme = url.partition("://")[0]
        form = f"{scheme}://user:password@host:{port}/database"
        try:
            parts = urlsplit(url)
        except ValueError:  # its text contains the URL, with the password
            raise BadUrl(f"the store URL cannot be read; write {form}") from None
        userinfo, at, where = parts.netloc.rpartition("@")
        # Checked first: an apparent port or database may be the second half of a password.
        if parts.fragment or "@" in parts.path or ("@" in parts.query and not at) or "@" in userinfo:
            raise BadUrl("write / ? # and @ within a user or password of the URL as %2F %3F %23 and %40")
        if "," in where:
            raise BadUrl(f"{scheme}:// takes one host; write {form}")
        user, _, password = userinfo.partition(":")
        host, given_port = _address(where, port, form)
        database = unquote(parts.path.removeprefix("/"))
        if not database or "/" in database or not database.isprintable():
            raise BadUrl(f"the URL must name an existing database: write {form}")
        options = _options(parts.query)
        limits = {name: seconds(name, options.pop(name)) for name in ("timeout", "connect_timeout") if name in options}
        pool = options.pop("pool", "4")
        if not (pool.isascii() and pool.isdigit() and 0 < int(pool) <= MOST_CONNECTIONS):
            raise BadUrl(f"pool={pool} is not a valid number of connections; write one from 1 to {MOST_CONNECTIONS}")
        settings = cls(
            url=f"{scheme}://{'***@' if at else ''}{where}/{quote(database)}",
            host=host,
            port=given_port,
            database=database,
            user=unquote(user) or None,
            password=unquote(password) or None,
            socket=options.pop("socket", None),
            tls=tls(options),
            pool=int(pool),
            **limits,
        )
        if options:
            raise BadUrl(f"unknown option {next(iter(options))!r}; the options are: {OPTIONS}")
        return settings

    def without_secrets(self, text: str) -> str:
        """A message of the driver, without the password, in case it contains it."""
        return text.replace(self.password, "***") if self.password and len(self.password) > 3 else text


class TlsReader:
    """Remove the TLS options from those of a URL, and return them as options of the driver."""

    def __call__(self, options: dict[str, str]) -> Mapping[str, Any]:
        raise NotImplementedError


def yes_or_no(options: dict[str, str], name: str, missing: str) -> bool:
    answer = options.pop(name, missing)
    if answer not in ("yes", "no"):
        raise BadUrl(f"{name} must be yes or no")
    return answer == "yes"


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise BadUrl(f"duplicate option {name!r}")
        options[name] = text
    return options


def _address(text: str, default_port: int, form: str) -> tuple[str, int]:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        # Not shown: it may be a password whose host is missing.
        raise BadUrl(f"the port is not a number from 1 to 65535; write {form}")
    return unquote(host) or "127.0.0.1", int(port) if port else default_port
