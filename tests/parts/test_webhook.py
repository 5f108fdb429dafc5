"""Webhooks: signatures, SSRF protection, and the meaning of each response. Against real servers on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from keystead.errors import BadValue
from keystead.parts.outbox import DeliveryFailed, Undeliverable
from keystead.parts.webhook import (
    BadWebhook,
    Webhook,
    WebhookSender,
    check_url,
    is_public,
    new_secret,
    resolve,
    signature,
    verify,
)
from tests.listening import listening, port_of
from tests.stopwatch import Stopwatch

NAME = "hooks.example.com"
NOW_MS = 1_767_225_600_000
SECRET = new_secret()
BODY = b'{"event":"counter.increment"}'


# --- a receiver -----------------------------------------------------------------------------------------------


class Receiver:
    """A server that records requests, with scripted responses."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.asked_for: list[str | None] = []  # by SNI
        self.answer: Callable[[asyncio.StreamWriter], Awaitable[None]] = answering("204 No Content")
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((head[0], headers, body))
        await self.answer(writer)


def answering(status: str, *headers: str, body: bytes = b"") -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return answer


def certificate(folder: Path, name: str = NAME) -> tuple[Path, Path]:
    """A certificate for a name, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@asynccontextmanager
async def receiving(
    receiver: Receiver, tls: tuple[Path, Path] | None = None, address: str = "127.0.0.1"
) -> AsyncIterator[Receiver]:
    context = None
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*tls)
        context.sni_callback = lambda _, name, __: receiver.asked_for.append(name)
    async with listening(receiver.serve, address, tls=context) as server:
        receiver.port = port_of(server)
        yield receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """By plain http."""
    async with receiving(Receiver()) as one:
        yield one


class Names:
    """A scripted name server."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, name: str, port: int) -> Sequence[str]:
        self.asked.append(name)
        return self.answers.pop(0)


def sender(*answers: Sequence[str], allow_private: bool = True, **more: Any) -> WebhookSender:
    names = more.pop("resolve", Names(*answers))
    return WebhookSender(allow_private=allow_private, resolve=names, now_ms=lambda: NOW_MS, **more)


def hook(receiver: Receiver, path: str = "/hook", *, scheme: str = "http", host: str = NAME) -> Webhook:
    return Webhook(f"{scheme}://{host}:{receiver.port}{path}", SECRET)


HERE = ["127.0.0.1"]


# --- signatures -----------------------------------------------------------------------------------------------


def test_a_signature_is_that_of_the_scheme() -> None:
    # The example that libraries of the scheme are tested with.
    made = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_secrets_are_long_and_not_used_twice() -> None:
    made = {new_secret() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(one.startswith("whsec_") and len(one) == 50 for one in made)


def test_a_receiver_can_verify_signatures() -> None:
    second = NOW_MS // 1000
    good = signature(SECRET, "msg_1", second, BODY)

    def is_good(
        secret: str = SECRET, id: str = "msg_1", at: str = str(second), given: str = good, body: bytes = BODY
    ) -> bool:
        return verify(secret, id, at, given, body, now_ms=NOW_MS)

    assert is_good()
    assert is_good(given=f"v1,AAAA v2,x {good}")
    assert not is_good(secret=new_secret())
    assert not is_good(id="msg_2")
    assert not is_good(at=str(second + 1))
    assert not is_good(body=BODY + b" ")
    for given in ("", "v1,", good[3:], good[:-4], f"v2,{good[3:]}", "v1,é", " ".join(["v1,x"] * 10 + [good])):
        assert not is_good(given=given)
    for at in ("", "-1", f"{second}.0", " 1", "\u0661", "9" * 5_000):
        assert not is_good(at=at)


def test_timestamps_beyond_five_minutes_are_refused() -> None:
    second = NOW_MS // 1000
    for off_s, expected in ((0, True), (300, True), (-300, True), (301, False), (-301, False)):
        at = second + off_s
        assert verify(SECRET, "m", str(at), signature(SECRET, "m", at, BODY), BODY, now_ms=NOW_MS) is expected


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!!", "whsec_AAAA", "password"])
def test_an_invalid_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(BadValue, match="new_secret") as caught:
        signature(secret, "m", 1, b"")
    assert not secret or secret == "whsec_" or secret not in str(caught.value)


# --- allowed URLs ---------------------------------------------------------------------------------------------

NOT_PUBLIC = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16"),
    *("192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.7", "192.88.99.1"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *(
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "100::1",
        "2001:db8::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1"),
    *(
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:808:808::1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
    ),
    *(
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:20::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
        "2606:4700::1%1",
    ),
    *("", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "017700000001", "1.2.3", "1.2.3.4.5"),
]
PUBLIC = [
    *(
        "8.8.8.8",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "169.253.0.1",
        "223.255.255.1",
    ),
    *("2606:4700::1", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_a_private_or_special_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://example.com/s3cret", "https"),
        ("ftp://example.com/s3cret", "https"),
        ("file:///s3cret", "https"),
        ("s3cret", "https"),
        ("", "a webhook must be a URL"),
        ("https://example.com/" + "s3cret" * 400, "at most 2,048"),
        ("https://user:s3cret@example.com/", "not contain a user name"),
        ("https://s3cret@example.com/", "not contain a user name"),
        ("https://@example.com/s3cret", "not contain a user name"),
        ("https://exa mple.com/s3cret", "not contain spaces"),
        ("https://example.com/s3cret\n", "not contain spaces"),
        ("https://example.com\\@127.0.0.1/s3cret", "backslashes"),
        ("https:///s3cret", "needs a host name"),
        ("https://a..example.com/s3cret", "needs a host name"),
        ("https://127.0.0.1%2f.example.com/s3cret", "needs a host name"),
        ("https://[fe80::1%25eth0]/s3cret", "needs a host name"),
        ("https://[fe80::1%eth0]/s3cret", "needs a host name"),
        ("https://[::1/s3cret", "not a URL"),
        ("https://example.com:s3cret/", "not a URL"),
        ("https://example.com:70000/s3cret", "port"),
        ("https://example.com:0/s3cret", "port"),
        ("https://example.com:22/s3cret", "443, or 1024"),
        ("https://example.com:25/s3cret", "443, or 1024"),
        ("https://127.0.0.1/s3cret", "private or special"),
        ("https://10.1.2.3/s3cret", "private or special"),
        ("https://[::1]/s3cret", "private or special"),
        ("https://[::ffff:127.0.0.1]/s3cret", "private or special"),
        ("https://[64:ff9b::7f00:1]/s3cret", "private or special"),
        ("https://169.254.169.254/latest/meta-data/s3cret", "private or special"),
        ("https://127。0。0。1/s3cret", "private or special"),
        ("https://2130706433/s3cret", "four numbers"),
        ("https://0x7f000001/s3cret", "four numbers"),
        ("https://0X7F.1/s3cret", "four numbers"),
        ("https://017700000001/s3cret", "four numbers"),
        ("https://127.1/s3cret", "four numbers"),
        ("https://0177.0.0.1/s3cret", "not a URL"),
        ("https://127.0.0.1./s3cret", "four numbers"),
        ("https://localhost/s3cret", "private network"),
        ("https://localhost./s3cret", "private network"),
        ("https://LOCALHOST/s3cret", "private network"),
        ("https://metadata.google.internal/s3cret", "private network"),
        ("https://printer.local/s3cret", "private network"),
        ("https://intranet/s3cret", "private network"),
    ],
)
def test_a_url_that_no_webhook_can_have_is_refused_with_a_sentence_that_does_not_show_it(
    url: str, sentence: str
) -> None:
    with pytest.raises(BadWebhook, match=sentence) as caught:
        check_url(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "https://discord.com/api/webhooks/1/token",
        "https://hooks.slack.com/services/T0/B0/x",
        "https://example.com",
        "https://example.com:8443/a?b=c&d=%20#e",
        "https://8.8.8.8/hook",
        "https://[2606:4700::1]/hook",
        "https://münchen.example/hook",
        "https://1password.com/hook",
        "https://example.com/@someone",
    ],
)
def test_a_public_url_is_accepted(url: str) -> None:
    check_url(url)
    check_url(url, allow_private=True)


def test_where_private_addresses_are_allowed_so_are_plain_http_and_any_port() -> None:
    for url in ("http://127.0.0.1:8080/x", "http://localhost/x", "https://[::1]:22/x", "http://printer.local/x"):
        check_url(url, allow_private=True)
    for url in ("ftp://127.0.0.1/", "http://a@127.0.0.1/", "http:///x", "gopher://x"):
        with pytest.raises(BadWebhook):
            check_url(url, allow_private=True)


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["8.8.8.8", "::1"], ["::ffff:127.0.0.1"], ["fe80::1%2"], ["127.1"]],
)
async def test_a_name_that_leads_to_a_private_address_is_not_called_even_if_others_are_public(
    receiver: Receiver, answer: list[str]
) -> None:
    webhook = hook(receiver, scheme="https")
    with pytest.raises(DeliveryFailed, match="private or special address"):
        await sender(answer, allow_private=False).send(webhook, "msg_1", BODY)
    assert receiver.connections == 0


async def test_numbers_that_name_an_address_in_another_way_are_not_called(receiver: Receiver) -> None:
    for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "127.0.0.1"):
        with pytest.raises(Undeliverable):
            await sender(allow_private=False, resolve=resolve).send(
                hook(receiver, scheme="https", host=host), "msg_1", BODY
            )
    assert receiver.connections == 0


async def test_the_name_servers_of_this_machine_know_this_machine() -> None:
    assert "127.0.0.1" in await resolve("localhost", 443) or "::1" in await resolve("localhost", 443)
    # A name that libraries parse as an address is checked as that address.
    assert not any(map(is_public, await resolve("2130706433", 443)))


# --- sending --------------------------------------------------------------------------------------------------


async def test_sent_webhooks_are_signed_json(receiver: Receiver) -> None:
    await sender(HERE).send(hook(receiver, "/hook/a%20b?c=d#e"), "msg_1", BODY)
    [(line, headers, body)] = receiver.requests
    assert line == "POST /hook/a%20b?c=d HTTP/1.1"
    assert (headers["host"], headers["content-type"]) == (f"{NAME}:{receiver.port}", "application/json")
    assert headers["webhook-id"] == "msg_1"
    assert body == BODY
    assert verify(
        SECRET, headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"], body, now_ms=NOW_MS
    )
    assert "cookie" not in headers
    assert "authorization" not in headers


async def test_tls_connects_to_the_checked_address_and_verifies_the_name(
    tmp_path: Path,
) -> None:
    files = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(files[0]))
    async with receiving(Receiver(), files) as receiver:
        names = Names(HERE)
        await sender(resolve=names, tls=trusted).send(hook(receiver, scheme="https"), "msg_1", BODY)
        assert names.asked == [NAME]  # once
        assert receiver.asked_for == [NAME]
        assert receiver.requests[0][1]["host"] == f"{NAME}:{receiver.port}"
        # A certificate for another name, and an untrusted one, are refused before anything is sent.
        with pytest.raises(DeliveryFailed, match="is unreachable"):
            await sender(HERE, tls=trusted).send(hook(receiver, scheme="https", host="example.org"), "m", BODY)
        with pytest.raises(DeliveryFailed, match="is unreachable"):
            await sender(tls=trusted).send(hook(receiver, scheme="https", host="127.0.0.1"), "m", BODY)
        with pytest.raises(DeliveryFailed, match="is unreachable"):
            await sender(HERE).send(hook(receiver, scheme="https"), "m", BODY)
        assert len(receiver.requests) == 1


async def test_a_host_name_is_resolved_once_against_dns_rebinding(receiver: Receiver) -> None:
    names = Names(HERE, ["192.0.2.1"])
    await sender(resolve=names).send(hook(receiver), "msg_1", BODY)
    assert names.answers == [["192.0.2.1"]]
    assert len(receiver.requests) == 1


async def test_an_unreachable_address_falls_back_to_the_next(receiver: Receiver) -> None:
    await sender(["127.0.0.2", "127.0.0.1"]).send(hook(receiver), "msg_1", BODY)
    assert len(receiver.requests) == 1


async def test_an_address_of_ipv6_is_called_by_name_and_by_itself() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:  # a machine without IPv6: then it is a failure like any other
        with pytest.raises(DeliveryFailed):
            await sender(["::1"]).send(Webhook(f"http://{NAME}:9/", new_secret()), "msg_1", BODY)
        return
    async with receiving(Receiver(), address="::1") as receiver:
        await sender(["::1"]).send(hook(receiver), "msg_1", BODY)
        await sender().send(hook(receiver, host="[::1]"), "msg_2", BODY)
        hosts = [headers["host"] for _, headers, _ in receiver.requests]
        assert hosts == [f"{NAME}:{receiver.port}", f"[::1]:{receiver.port}"]


async def test_each_message_has_a_separate_connection(receiver: Receiver) -> None:
    one = sender(HERE, HERE)
    await one.send(hook(receiver), "msg_1", BODY)
    await one.send(hook(receiver, host="other.example.com"), "msg_2", BODY)
    assert receiver.connections == 2
    assert [headers["connection"] for _, headers, _ in receiver.requests] == ["close", "close"]


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "204 No Content", "299 Fine"])
async def test_a_status_of_success_is_delivered(receiver: Receiver, status: str) -> None:
    receiver.answer = answering(status)
    await sender(HERE).send(hook(receiver), "msg_1", BODY)


@pytest.mark.parametrize("status", ["400 No", "401 No", "404 No", "408 No", "429 No", "500 No", "503 No", "599 No"])
async def test_a_status_of_failure_is_tried_again(receiver: Receiver, status: str) -> None:
    receiver.answer = answering(status, body=b"s3cret")
    with pytest.raises(DeliveryFailed, match=rf"refused the request \(status {status[:3]}\)") as caught:
        await sender(HERE).send(hook(receiver), "msg_1", BODY)
    assert "s3cret" not in str(caught.value)
    assert caught.value.retry_after_ms is None


async def test_a_gone_receiver_is_undeliverable(receiver: Receiver) -> None:
    receiver.answer = answering("410 Gone")
    with pytest.raises(Undeliverable, match="the receiver is gone"):
        await sender(HERE).send(hook(receiver), "msg_1", BODY)


@pytest.mark.parametrize(
    ("asked", "ms"),
    [
        ("2", 2_000),
        ("1.5", 1_500),
        ("0", 0),
        ("999999999", 86_400_000),
        ("soon", None),
        ("-1", None),
        ("1e9", None),
        ("inf", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
async def test_a_receiver_may_send_retry_after(receiver: Receiver, asked: str, ms: int | None) -> None:
    receiver.answer = answering("429 Too Many Requests", f"retry-after: {asked}")
    with pytest.raises(DeliveryFailed) as caught:
        await sender(HERE).send(hook(receiver), "msg_1", BODY)
    assert caught.value.retry_after_ms == ms


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    async with receiving(Receiver()) as other:
        receiver.answer = answering(f"{status} Elsewhere", f"location: http://127.0.0.1:{other.port}/admin")
        with pytest.raises(DeliveryFailed, match="redirect"):
            await sender(HERE).send(hook(receiver), "msg_1", BODY)
        assert (len(receiver.requests), other.connections) == (1, 0)


async def test_no_proxy_and_no_password_file_of_the_environment_is_used(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving(Receiver()) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        (tmp_path / "netrc").write_text(f"machine {NAME} login ann password s3cret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        await sender(HERE).send(hook(receiver), "msg_1", BODY)
        assert proxy.connections == 0
    assert "authorization" not in receiver.requests[0][1]


# --- receivers that misbehave ---------------------------------------------------------------------------------


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def dripping(writer: asyncio.StreamWriter) -> None:
    """A slow trickle: each wait is short, but not the total."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless_heads(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def hints_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200")


async def nonsense(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")


@pytest.mark.parametrize("answer", [silent, dripping, endless_heads, hints_for_ever, cut_off, nonsense])
async def test_a_misbehaving_receiver_fails_in_time(receiver: Receiver, answer: Any) -> None:
    receiver.answer = answer
    stopwatch = Stopwatch()
    with pytest.raises(DeliveryFailed) as caught:
        await sender(HERE, timeout_s=0.3).send(hook(receiver), "msg_1", BODY)
    assert stopwatch.seconds < 3
    assert NAME not in str(caught.value)


async def test_an_endless_response_is_not_read(receiver: Receiver) -> None:
    written = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
            written += 65_536

    receiver.answer = endless
    await sender(HERE).send(hook(receiver), "msg_1", BODY)
    assert written < 64 * 1024 * 1024  # what fits between the two


async def test_a_name_that_is_not_found_or_not_answered_has_failed_in_time(receiver: Receiver) -> None:
    async def unknown(name: str, port: int) -> Sequence[str]:
        raise OSError(f"{name} is not known")

    async def hanging(name: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return HERE

    for names, sentence in (
        (unknown, "be resolved"),
        (Names([]), "be resolved"),
        (hanging, "did not respond within 0.2"),
    ):
        with pytest.raises(DeliveryFailed, match=sentence):
            await sender(resolve=names, timeout_s=0.2).send(hook(receiver), "msg_1", BODY)
    assert receiver.connections == 0


async def test_an_unreachable_receiver_is_a_failure(receiver: Receiver) -> None:
    with pytest.raises(DeliveryFailed, match=r"is unreachable \(ConnectError\)"):
        await sender(["127.0.0.2"]).send(hook(receiver), "msg_1", BODY)


async def test_nothing_is_sent_with_an_invalid_url_or_secret(receiver: Receiver) -> None:
    with pytest.raises(Undeliverable, match="https"):
        await sender(HERE, allow_private=False).send(hook(receiver), "msg_1", BODY)
    with pytest.raises(Undeliverable, match="new_secret"):
        await sender(HERE).send(Webhook(hook(receiver).url, "password"), "msg_1", BODY)
    assert receiver.connections == 0


# --- secrets --------------------------------------------------------------------------------------------------


async def test_neither_url_nor_secret_nor_answer_is_in_a_log_an_error_or_a_text(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    webhook = hook(receiver, "/services/s3cret-path?token=s3cret-query")
    said = [repr(webhook), str(webhook)]
    failing: list[Any] = [
        answering("404 No", body=b"s3cret-answer"),
        answering("301 Elsewhere", "location: /services/s3cret-path"),
        *(cut_off, nonsense, silent),
    ]
    receiver.answer = answering("200 OK", "set-cookie: s3cret-cookie", body=b"s3cret-answer")
    await sender(HERE, timeout_s=30).send(webhook, "msg_1", BODY)
    for answer in (*failing, None):
        receiver.answer = answer
        with pytest.raises(DeliveryFailed) as caught:
            await sender(["127.0.0.2"] if answer is None else HERE, timeout_s=0.2).send(webhook, "msg_1", BODY)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        said.append(str(caught.value))
    said.append(caplog.text)
    assert "s3cret" not in "\n".join(said)
    assert SECRET not in "\n".join(said)
    assert SECRET.removeprefix("whsec_") not in json.dumps([headers for _, headers, _ in receiver.requests])


async def test_name_servers_that_do_not_answer_keep_only_webhooks_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS lookups do not block other thread work; too many concurrent lookups are refused."""
    answered = threading.Event()

    def silent(*asked: Any, **more: Any) -> list[Any]:
        answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    asked = [asyncio.create_task(resolve(f"slow{number}.example", 443)) for number in range(100)]
    try:
        # Those that are too many end by themselves; the others go on waiting.
        ended, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_EXCEPTION)
        assert waiting
        assert {type(task.exception()) for task in ended} == {OSError}
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "a file"), 30) == "a file"
    finally:
        answered.set()
    assert set(map(tuple, await asyncio.gather(*waiting))) == {("192.0.2.1",)}
    assert await resolve("later.example", 443) == ["192.0.2.1"]
