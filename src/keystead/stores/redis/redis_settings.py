"""The settings in a Redis URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.stores import durations
from keystead.stores.durations import seconds

DEFAULT_PORTS = {"single": 6379, "cluster": 6379, "sentinel": 26379}
Topology: TypeAlias = Literal["single", "sentinel", "cluster"]
_TOPOLOGIES: dict[str, Topology] = {"sentinel": "sentinel", "cluster": "cluster"}
OPTIONS = "timeout, connect_timeout, ca, cert, key, verify, sentinel_user, sentinel_password"


class RedisAddress(NamedTuple):
    host: str
    port: int
    path: str = ""  # of a Unix socket, instead of host and port

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RedisSettings:
    url: str  # without secrets
    topology: Topology
    addresses: list[RedisAddress]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    service: str = ""  # the name of the master in Sentinel
    sentinel_user: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    timeout: float = field(default_factory=lambda: durations.TIMEOUT_S)
    connect_timeout: float = field(default_factory=lambda: durations.CONNECT_TIMEOUT_S)

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises BadUrl, whose message has the correct form and never the password."""
        try:
            parts = urlsplit(url)
        except ValueError:  # its text contains the URL, with the password
            raise BadUrl("the store URL cannot be read; write redis://user:password@host:6379/0") from None
        scheme, _, form = parts.scheme.partition("+")
        userinfo, at, hosts = parts.netloc.rpartition("@")
        # Checked first: an apparent port or database may be the second half of a password.
        if parts.fragment or ("@" in parts.path and form != "unix") or ("@" in parts.query and not at):
            raise BadUrl("write / ? # and @ within a user or password of the URL as %2F %3F %23 and %40")
        user, _, password = userinfo.partition(":")
        topology = _TOPOLOGIES.get(form, "single")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        limits = {name: seconds(name, options.pop(name)) for name in ("timeout", "connect_timeout") if name in options}
        path = unquote(parts.path)
        if form == "unix":
            addresses, service, database = [_socket_address(path, hosts)], "", options.pop("db", "0")
        else:
            addresses = [_parse_address(host, DEFAULT_PORTS[topology]) for host in hosts.split(",")]
            service, database = _parse_path(path, topology)
        if topology == "single" and len(addresses) > 1:
            raise BadUrl("redis:// takes one host; write redis+cluster:// or redis+sentinel:// for several")
        if not (database.isascii() and database.isdigit()):
            raise BadUrl(f"the database must be a number, as in {parts.scheme}://host:port/0, not {database!r}")
        if topology == "cluster" and database != "0":
            raise BadUrl("a cluster has only database 0; leave the number out")
        tls = _tls_context(options) if scheme in ("rediss", "valkeys") else None
        settings = cls(
            url=f"{parts.scheme}://{'***@' if at else ''}{hosts}{parts.path}",
            topology=topology,
            addresses=addresses,
            user=unquote(user) or None,
            password=unquote(password) or None,
            database=int(database),
            service=service,
            sentinel_user=options.pop("sentinel_user", None),
            sentinel_password=options.pop("sentinel_password", None),
            tls=tls,
            **limits,
        )
        if options:
            raise BadUrl(f"unknown option {next(iter(options))!r}; the options are: {OPTIONS}")
        return settings


def _socket_address(path: str, hosts: str) -> RedisAddress:
    if not path.strip("/") or hosts:
        raise BadUrl("write redis+unix:///path/to/redis.sock, with three slashes")
    return RedisAddress("", 0, path)


def _parse_path(path: str, topology: Topology) -> tuple[str, str]:
    """The name of the master (Sentinel only) and the database."""
    segments = path.strip("/").split("/")
    service = segments.pop(0) if topology == "sentinel" else ""
    if topology == "sentinel" and not service:
        raise BadUrl("redis+sentinel:// needs the name of the master: redis+sentinel://host:26379/mymaster")
    return service, "/".join(segments) or "0"


def _parse_address(text: str, default_port: int) -> RedisAddress:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        # Not shown: it may be a password whose host is missing.
        raise BadUrl("the port is not a number from 1 to 65535; write redis://user:password@host:6379/0")
    return RedisAddress(host or "127.0.0.1", int(port) if port else default_port)


def _tls_context(options: dict[str, str]) -> ssl.SSLContext:
    ca, cert, key = (options.pop(name, None) for name in ("ca", "cert", "key"))
    verify = options.pop("verify", "yes")
    if verify not in ("yes", "no"):
        raise BadUrl("verify must be yes or no")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise BadUrl(f"the certificates of the URL cannot be read: {error}") from None
    if verify == "no":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
