"""No credential is in the store, a log or an error; and forged tokens are refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from keystead import KeyRing, Log, Store, never
from keystead.errors import BadValue, Contended
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.digest import base64url, digest
from keystead.parts.refresh import RefreshEvent, RotationRefused
from keystead.parts.refresh.refresh_token_format import Mint
from tests.parts.refresh.conftest import GRACE_MS, RING, App, Clock, TokenKeys, everywhere, here, retried, rotated


async def dump(store: Store) -> str:
    """The whole content of the store, as text."""
    found: list[bytes] = []
    async for page in store.scan("*"):
        for key in page:
            found += [key, *(reply for reply in await store.run([("GET", key)]) if reply is not None)]
    return b"\n".join(found).decode()


def parts_of(*tokens: str) -> Iterator[str]:
    for token in tokens:
        secret, _, mac = token.split(".")
        yield from (token, secret, mac)


@everywhere
async def test_no_token_and_no_part_of_one_is_in_the_store_a_log_or_a_repr(
    app: App, store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    begun = await app.begin(client="desktop")
    first = await rotated(app.tokens.rotate(begun.token, client="desktop"))
    again = await retried(app.tokens.rotate(begun.token, client="desktop"))
    held = await dump(store)
    clock.pass_ms(GRACE_MS)
    await app.tokens.rotate(begun.token, client="desktop")
    held += await dump(store)
    shown = repr([begun, first, again, app.tokens, app.told]) + caplog.text
    assert "token reuse detected (late)" in shown
    for secret in parts_of(begun.token, first.token):
        assert secret not in held
        assert secret not in shown


@everywhere
async def test_stored_records_contain_no_token(app: App, store: Store) -> None:
    begun = await app.begin()
    secret, generation, mac = begun.token.split(".")
    assert begun.id == digest(secret)
    for made_up in (begun.id, f"{begun.id}.0.{mac}", f"{begun.id}.0.{begun.id}", f"{secret}.0.{begun.id}"):
        assert await app.tokens.rotate(made_up) == RotationRefused("unknown")
    assert await rotated(app.tokens.rotate(begun.token))  # none of that did anything
    assert generation == "0"


@here
async def test_the_next_token_cannot_be_derived_from_an_old_one(app: App) -> None:
    begun = await app.begin()
    secret, _, mac = begun.token.split(".")
    other_ring = Mint(KeyRing({"x": b"x" * 32}).derived("refresh tokens")).first(b"s" * 32)
    for made_up in (
        f"{secret}.1.{mac}",
        f"{secret}.00.{mac}",
        f"{secret}.+0.{mac}",
        f"{secret}.\u0660.{mac}",  # a zero in Arabic
        f"{secret}.-1.{mac}",
        f"{secret}.0.{mac}\n",
        f" {begun.token}",
        f"{secret}.{10**12}.{mac}",
        other_ring.text,
    ):
        assert await app.tokens.rotate(made_up) == RotationRefused("unknown")
    assert app.told == []
    assert await app.works(begun.token)


def test_the_keys_of_sealing_and_of_tokens_are_not_the_same() -> None:
    assert RING.derived("refresh tokens") != RING.derived("another purpose")


@here
async def test_a_secret_is_never_used_for_two_chains(store: Store, clock: Clock) -> None:
    made = iter([b"1" * 32, b"1" * 32, b"2" * 32])
    app = App(store, clock, new_secret=lambda: next(made))
    await app.log_in()
    first, second = await app.begin(client="one"), await app.begin(client="two")
    assert second.token.startswith(base64url(b"2" * 32))
    kept = await app.keys.refresh(first.id).get()
    assert kept is not None
    assert kept.client == "one"


@here
async def test_a_broken_random_source_is_reported(store: Store, clock: Clock) -> None:
    same = App(store, clock, new_secret=lambda: b"1" * 32)
    await same.begin()
    with pytest.raises(Contended, match="random"):
        await same.begin()
    with pytest.raises(BadValue, match="32 bytes"):
        await App(store, clock, new_secret=lambda: b"short").begin()


@here
async def test_a_secret_has_256_bits_and_comes_from_the_system(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def token_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    monkeypatch.setattr("secrets.token_bytes", token_bytes)
    begun = await app.begin()
    assert asked == [32]
    assert begun.token.startswith(base64url(bytes(range(32))))


@here
async def test_a_reused_token_is_refused_even_if_reporting_fails(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(event: RefreshEvent) -> None:
        raise RuntimeError("the log is full")

    app = App(store, clock, tell=broken)
    await app.log_in()
    begun = await app.begin()
    first = await rotated(app.tokens.rotate(begun.token))
    clock.pass_ms(GRACE_MS)
    assert await app.tokens.rotate(begun.token) == RotationRefused("reused", "late")
    assert await app.tokens.rotate(first.token) == RotationRefused("reused", "ended")
    assert "reporting a security event failed: RuntimeError" in caplog.text
    silent = App(store, clock, tell=None)
    assert await silent.tokens.rotate(first.token) == RotationRefused("reused", "ended")


@here
@pytest.mark.parametrize(
    "stored", [b"\xff\xfe", b"[]", b'{"generation":"many"}', b'{"uid":"ann","sid":"x","generation":-1.5}']
)
async def test_an_invalid_record_is_reported(app: App, store: Store, stored: bytes) -> None:
    begun = await app.begin()
    await store.run([("SET", app.keys.refresh(begun.id).key, stored)])
    assert await app.tokens.rotate(begun.token) == RotationRefused("unreadable")
    assert await store.run([("GET", app.keys.refresh(begun.id).key)]) == [stored]  # for the doctor


@here
async def test_a_key_of_another_kind_is_reported(app: App, store: Store) -> None:
    begun = await app.begin()
    key = app.keys.refresh(begun.id).key
    await store.run([("DEL", key), ("LPUSH", key, "x")])
    assert await app.tokens.rotate(begun.token) == RotationRefused("unreadable")


class AuditedKeys(TokenKeys):
    """Refresh tokens, and a log of what was done with them."""

    audit = Log("audit:app", AuditEntry, keep=100, lifetime=never("keeps its size"))


@here
async def test_a_misuse_can_be_noted_in_an_audit(store: Store, clock: Clock) -> None:
    audit = Audit(AuditedKeys(store, seal=RING, now_ms=clock).audit())
    app = App(
        store,
        clock,
        tell=lambda event: audit.note(event.event, who=f"user:{event.user}", what=event.chain, why=event.why or ""),
    )
    await app.log_in()
    begun = await app.begin()
    await app.tokens.rotate(begun.token)
    clock.pass_ms(GRACE_MS)
    await app.tokens.rotate(begun.token)
    [entry] = await audit.latest(10)
    assert (entry.event, entry.who, entry.what, entry.why) == ("refresh-reused", "user:ann", begun.id, "late")
