"""Webhooks: signed HTTP POSTs to URLs that users enter, with SSRF protection.

Signatures follow the Standard Webhooks scheme. The URL of a webhook is itself a secret with Discord, Slack and others:
neither it nor any part of it appears in an error, a log or a repr.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import logging
import re
import secrets
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import BoundedSemaphore
from typing import Final, NamedTuple, TypeAlias

from keystead.errors import BadValue
from keystead.extras import from_extra
from keystead.parts.outbox import DeliveryFailed, Undeliverable
from keystead.schema import times

with from_extra("oauth", "keystead.parts.webhook"):
    import httpx2

__all__ = [
    "BadWebhook",
    "Resolve",
    "Webhook",
    "WebhookSender",
    "check_url",
    "is_public",
    "new_secret",
    "resolve",
    "signature",
    "verify",
]

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32
_MIN_SECRET_BYTES: Final = 16
_TOLERANCE_S: Final = 5 * 60
_MAX_TIME_DIGITS: Final = 12  # digits
_MAX_SIGNATURES: Final = 10  # per header, while a secret is rotated
_MAX_URL: Final = 2_048
_MAX_NAME: Final = 253
_MAX_ADDRESSES: Final = 4  # tried per name
_HTTPS: Final = 443
_LAST_PORT: Final = 65_535
_FIRST_FREE_PORT: Final = 1_024  # lower ports belong to mail, shells and name servers
_TRY_LATER: Final = frozenset({429, 503})
_MAX_RETRY_AFTER_S: Final = 86_400

# Names that are never public.
_PRIVATE_NAMES: Final = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "home.arpa")

# Addresses that are not public, by the special-purpose registries of IANA, and the one public address at which a cloud
# (Azure) serves metadata to its machines. All other metadata addresses are within these networks.
_NOT_PUBLIC_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_UNICAST_6: Final = IPv6Network("2000::/3")  # all that is allocated
_NOT_PUBLIC_6: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)
_NAT64: Final = IPv6Network("64:ff9b::/96")  # with an IPv4 address in its last 32 bits


class BadWebhook(BadValue):
    """A URL that is not allowed for a webhook. The message says why, and never shows the URL."""

    code = "bad-webhook"


@dataclass(frozen=True)
class Webhook:
    """The URL and the signing secret. Both are secrets, and not in the repr."""

    url: str = field(repr=False)
    secret: str = field(repr=False)


# --- signatures ---------------------------------------------------------------------------------------------------


def new_secret() -> str:
    """A new signing secret: `whsec_` and 256 bits in base64."""
    return _PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of a message: `v1,` and an HMAC of its id, its time in seconds and its body.

    Raises BadValue for an invalid secret.
    """
    signed = hmac.digest(_key(secret), b"%s.%d.%s" % (id.encode(), timestamp, body), sha256)
    return f"v1,{b64encode(signed).decode()}"


def verify(secret: str, id: str, timestamp: str, signatures: str, body: bytes, *, now_ms: int | None = None) -> bool:
    """For a receiver: whether the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` match this body.

    Also False if the time is more than five minutes from now, which prevents replay. Repeats within that time have the
    same id. A header may contain several signatures, while a secret is rotated. The comparison takes constant time.
    Raises BadValue for an invalid secret.
    """
    is_time = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_TIME_DIGITS
    moment_s = int(timestamp) if is_time else 0
    expected = signature(secret, id, moment_s, body).encode()
    now_s = (times.now_ms() if now_ms is None else now_ms) // 1000
    if not is_time or abs(now_s - moment_s) > _TOLERANCE_S:
        return False
    given = [one.encode() for one in signatures.split(" ")[:_MAX_SIGNATURES]]
    return any([hmac.compare_digest(expected, one) for one in given])  # noqa: C419 - each of them is compared


def _key(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _MIN_SECRET_BYTES:
        raise BadValue("a webhook secret is whsec_ and at least 16 bytes in base64; create one with new_secret()")
    return key


# --- addresses ----------------------------------------------------------------------------------------------------


def is_public(address: str) -> bool:
    """Whether this is an address of the public Internet. False for anything that is not an address."""
    try:
        read = ip_address(address)
    except ValueError:
        return False
    if isinstance(read, IPv6Address):
        if read.scope_id is not None:
            return False  # a zone id is local to this machine
        within = read.ipv4_mapped or (IPv4Address(int(read) & 0xFFFFFFFF) if read in _NAT64 else None)
        if within is None:
            return read in _UNICAST_6 and not any(read in network for network in _NOT_PUBLIC_6)
        read = within
    return not any(read in network for network in _NOT_PUBLIC_4)


# A separate pool: a slow name server must not block file access. A thread ends when its reply arrives, even if the
# caller has gone; so hanging threads are counted.
_THREADS: Final = 16
_threads = ThreadPoolExecutor(_THREADS, "keystead-names")
_lookup_slots = BoundedSemaphore(_THREADS)


async def resolve(name: str, port: int) -> Sequence[str]:
    """Resolve a name with the resolver of this machine. Raises OSError, also for too many concurrent lookups."""
    if not _lookup_slots.acquire(blocking=False):
        raise OSError("too many concurrent DNS lookups")
    looked_up = _threads.submit(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    looked_up.add_done_callback(lambda _: _lookup_slots.release())
    found = await asyncio.wrap_future(looked_up)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_url(url: str, *, allow_private: bool = False) -> None:
    """Check the URL of a webhook when it is set. Raises BadWebhook with the reason.

    It checks the text only, without DNS: addresses are checked each time something is sent. `allow_private` allows
    plain http, any port and private addresses.
    """
    _parse_target(url, allow_private)


class _Target(NamedTuple):
    """A parsed URL."""

    url: httpx2.URL
    host: str  # a name, or an address without brackets
    port: int

    @property
    def is_address(self) -> bool:
        return _as_address(self.host) is not None


def _parse_target(url: str, allow_private: bool) -> _Target:
    if not url or len(url) > _MAX_URL:
        raise BadWebhook(f"a webhook must be a URL such as https://example.com/hook, at most {_MAX_URL:,} characters")
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        raise BadWebhook("the URL of a webhook must not contain spaces, backslashes or control characters")
    try:
        read = httpx2.URL(url)
        host, port = read.raw_host.decode("ascii"), read.port
    except (httpx2.InvalidURL, ValueError, UnicodeError):  # their messages contain the URL
        raise BadWebhook("this is not a URL; write one such as https://example.com/hook") from None
    if read.scheme not in (("https", "http") if allow_private else ("https",)):
        raise BadWebhook("the URL of a webhook must start with https://")
    if "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]:
        raise BadWebhook("the URL of a webhook must not contain a user name or password")
    if not host or len(host) > _MAX_NAME or "%" in host or any(not label for label in host.rstrip(".").split(".")):
        raise BadWebhook("the URL of a webhook needs a host name, as in https://example.com/hook")
    if port is not None and not 0 < port <= _LAST_PORT:
        raise BadWebhook("the URL of a webhook has an invalid port")
    target = _Target(read, host, port or (_HTTPS if read.scheme == "https" else 80))
    if not allow_private:
        _refuse_private(target)
    return target


def _refuse_private(target: _Target) -> None:
    """Refuse private targets by the text alone, as early feedback; the real check happens when sending."""
    name = target.host.rstrip(".")
    if target.is_address:
        if not is_public(target.host):
            raise BadWebhook("a webhook must be on the public Internet; this address is private or special")
    elif _is_number(name.rpartition(".")[2]):
        raise BadWebhook("write an IPv4 address as four numbers separated by dots")
    elif "." not in name or any(name == own or name.endswith(f".{own}") for own in _PRIVATE_NAMES):
        raise BadWebhook("a webhook must be on the public Internet; this name is for private networks")
    if target.port != _HTTPS and target.port < _FIRST_FREE_PORT:
        raise BadWebhook("the port of a webhook must be 443, or 1024 and above")


def _as_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_number(label: str) -> bool:
    """Whether a name with this last label is parsed as an address, as in 2130706433, 0x7f000001 or 127.1."""
    return label.isdigit() or (label[:2] == "0x" and all(digit in "0123456789abcdef" for digit in label[2:]))


# --- sending ------------------------------------------------------------------------------------------------------


# At level DEBUG the library logs response headers, and a redirect contains the URL.
_sending: ContextVar[bool] = ContextVar("keystead_webhook_sending", default=False)
for _name in ("httpcore2.connection", "httpcore2.http11"):
    logging.getLogger(_name).addFilter(lambda record: not _sending.get())


class WebhookSender:
    """Sends webhooks, with SSRF protection.

    allow_private   allow private addresses and plain http: for development and tests
    timeout_s       the time limit for everything: DNS, connection, response
    now_ms          the clock for signatures
    resolve         resolves a name to addresses
    tls             the trusted certificate authorities; by default those of httpx2

    **The name is resolved once, each address is checked, and the connection is made to one of them**: DNS rebinding has
    no effect. If any address is not public, none is used. The certificate is checked against the name. Redirects are
    not followed, proxies and `.netrc` of the environment are ignored, connections are not shared, and the response body
    is not read.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout_s: float = 5.0,
        now_ms: Callable[[], int] = times.now_ms,
        resolve: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._resolve = resolve
        self._given_tls = tls

    async def send(self, webhook: Webhook, id: str, body: bytes) -> None:
        """POST a JSON body to a webhook. Returns if the receiver answered with a 2xx status.

        `id` is the same for each attempt. Raises DeliveryFailed if a retry makes sense, and Undeliverable if not: the
        receiver is gone (410), or the URL is not allowed.
        """
        timestamp = self._now_ms() // 1000
        try:
            target = _parse_target(webhook.url, self._allow_private)
            headers = {
                "content-type": "application/json",
                "user-agent": "keystead",
                "accept-encoding": "identity",
                "connection": "close",
                "webhook-id": id,
                "webhook-timestamp": str(timestamp),
                "webhook-signature": signature(webhook.secret, id, timestamp, body),
            }
        except BadValue as error:
            raise Undeliverable(str(error)) from None
        try:
            # The library's timeouts apply to each read, so a slow trickle of bytes never reaches them.
            async with asyncio.timeout(self._timeout_s):
                addresses = await self._addresses(target)
                status, asked_s = await self._post(target, addresses, headers, body)
        # `from None`, here and below: library errors carry the request, and with it the URL.
        except (TimeoutError, httpx2.TimeoutException):
            raise DeliveryFailed(f"the receiver did not respond within {self._timeout_s:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise DeliveryFailed(f"the receiver is unreachable ({type(error).__name__})") from None
        _raise_for_status(status, asked_s)

    async def _addresses(self, target: _Target) -> Sequence[str]:
        """The addresses to connect to, all of them checked."""
        if target.is_address:
            return [target.host]
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError):
            raise DeliveryFailed("the host name of the receiver cannot be resolved") from None
        if not found:
            raise DeliveryFailed("the host name of the receiver cannot be resolved")
        if not self._allow_private and not all(map(is_public, found)):
            raise DeliveryFailed("the host name of the receiver resolves to a private or special address")
        return found[:_MAX_ADDRESSES]

    async def _post(
        self, target: _Target, addresses: Sequence[str], headers: dict[str, str], body: bytes
    ) -> tuple[int, str]:
        """The status of the response, and its `Retry-After`."""
        *others, last = addresses
        share_s = self._timeout_s / len(addresses)
        for address in others:
            try:
                return await self._post_to(address, target, headers, body, share_s)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nothing was sent
        return await self._post_to(last, target, headers, body, self._timeout_s)

    async def _post_to(
        self, address: str, target: _Target, headers: dict[str, str], body: bytes, connect_s: float
    ) -> tuple[int, str]:
        timeouts = httpx2.Timeout(self._timeout_s, connect=connect_s).as_dict()
        extensions = {"timeout": timeouts} | ({} if target.is_address else {"sni_hostname": target.host.rstrip(".")})
        request = httpx2.Request(
            "POST",
            target.url.copy_with(host=address, fragment=None),
            headers={"host": target.url.netloc.decode("ascii"), **headers},
            content=body,
            extensions=extensions,
        )
        quiet = _sending.set(True)
        try:
            # A transport per request: a client would log the URL, and a shared one would reuse a connection for another
            # name at the same address.
            async with httpx2.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
                answer = await transport.handle_async_request(request)
                try:
                    return answer.status_code, answer.headers.get("retry-after", "")
                finally:
                    await answer.aclose()
        finally:
            _sending.reset(quiet)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx2.create_ssl_context(trust_env=False)


def _raise_for_status(status: int, header: str) -> None:
    if 200 <= status < 300:
        return
    if status == 410:
        raise Undeliverable("the receiver is gone (status 410)")
    if 300 <= status < 400:
        raise DeliveryFailed(f"the receiver responded with a redirect, which is not followed (status {status})")
    raise DeliveryFailed(f"the receiver refused the request (status {status})", _retry_after_ms(status, header))


def _retry_after_ms(status: int, header: str) -> int | None:
    """`Retry-After` in ms. Some receivers send fractions of seconds; dates are ignored."""
    whole, _, rest = header.partition(".")
    if status not in _TRY_LATER or not (whole + rest).isascii() or not (whole + rest).isdigit() or len(header) > 12:
        return None
    return round(min(float(header), _MAX_RETRY_AFTER_S) * 1000)
