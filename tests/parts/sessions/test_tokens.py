"""Session tokens: new, long, never chosen by a client, and never in the store."""

import base64
import secrets
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keystead import Store
from keystead.errors import BadValue
from keystead.parts.sessions import Gone, Live, Sessions, id_of
from keystead.parts.sessions.session_token import SECRET_BYTES, USER_MAX_BYTES, new_token, parse_token
from tests.parts.sessions.conftest import AppSession, Clock, everywhere, sessions_of
from tests.parts.sessions.relays import Relay

users = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda user: len(user.encode()) <= USER_MAX_BYTES
)
some_bytes = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


def secret_part(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.partition(".")[0] + "=")


async def everything(store: Store) -> bytes:
    """All keys of a store and their contents."""
    held = []
    async for page in store.scan():
        for key in page:
            [kind] = await store.run([("TYPE", key)])
            read = {"string": "GET", "set": "SMEMBERS"}[kind.decode() if isinstance(kind, bytes) else kind]
            held.append(repr((key, (await store.run([(read, key)]))[0])).encode())
    return b"\n".join(held)


# --- format --------------------------------------------------------------------------------------------------


@given(secret=some_bytes, user=users)
@example(secret=bytes(32), user="\U0010ffff" * 128)
def test_a_token_contains_its_user_for_any_user_id(secret: bytes, user: str) -> None:
    token = new_token(secret, user)
    assert parse_token(token) == (id_of(token), user)
    assert secret_part(token) == secret


@given(one=st.tuples(some_bytes, users), other=st.tuples(some_bytes, users))
def test_no_two_secrets_or_users_have_one_token(one: tuple[bytes, str], other: tuple[bytes, str]) -> None:
    assert (new_token(*one) == new_token(*other)) == (one == other)
    assert (id_of(new_token(*one)) == id_of(new_token(*other))) == (one == other)


@given(text=st.text() | st.from_regex(r"\A[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{0,20}\Z"))
def test_a_malformed_token_is_gone_and_never_an_error(text: str) -> None:
    named = parse_token(text)
    assert named is None or named[1]


def test_a_token_fits_into_a_cookie_with_much_room_to_spare() -> None:
    assert len(new_token(bytes(32), "x" * USER_MAX_BYTES)) < 1024


@pytest.mark.parametrize("user", ["", "x" * 513, "\ud800", "é" * 257])
def test_a_user_whose_name_no_token_can_hold_is_refused(user: str) -> None:
    with pytest.raises(BadValue, match="the id of a user"):
        new_token(bytes(32), user)


def test_a_secret_that_is_too_short_is_refused() -> None:
    with pytest.raises(BadValue, match="at least 32 bytes"):
        new_token(bytes(31), "ann")


# --- origin --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_a_token_has_256_bits_from_the_generator_for_secrets(
    sessions: Sessions[AppSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    generator = secrets.token_bytes

    def watched(count: int | None = None) -> bytes:
        asked.append(count)
        return generator(count)

    monkeypatch.setattr(secrets, "token_bytes", watched)
    made = await sessions.create(AppSession(uid="ann"))
    assert asked.count(32) == 1
    assert len(secret_part(made.token)) == 32


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_of_a_million_secrets_none_repeats(sessions: Sessions[AppSession]) -> None:
    new_secret: Any = sessions._new_secret
    assert len({new_secret() for _ in range(1_000_000)}) == 1_000_000


@everywhere
async def test_where_the_generator_repeats_itself_the_first_session_is_not_touched(store: Store, clock: Clock) -> None:
    first, second = bytes(32), b"2" * 32
    drawn = chain([first, first, first, second], repeat(first))
    sessions = sessions_of(store, clock, new_secret=lambda: next(drawn))
    one = await sessions.create(AppSession(uid="ann", theme="of the first"))
    other = await sessions.create(AppSession(uid="ann", theme="of the second"))
    assert (secret_part(one.token), secret_part(other.token)) == (first, second)
    found = await sessions.read(one.token)
    assert found
    assert found.session.theme == "of the first"
    assert {live.id for live in await sessions.list_for("ann")} == {one.id, other.id}


@everywhere
async def test_a_rotation_never_overwrites_another_session(store: Store, clock: Clock) -> None:
    drawn = iter([bytes(32), b"1" * 32, bytes(32), b"2" * 32])
    sessions = sessions_of(store, clock, new_secret=lambda: next(drawn))
    one = await sessions.create(AppSession(uid="ann", theme="of the first"))
    other = await sessions.create(AppSession(uid="ann", theme="of the second"))
    rotated = await sessions.rotate(other.token)
    assert rotated
    assert rotated.token == new_token(b"2" * 32, "ann")
    found = await sessions.read(one.token)
    assert found
    assert found.session.theme == "of the first"


# --- client input --------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    "attackerchosenid",
    "a" * 43,
    "a" * 43 + ".",
    "a" * 43 + ".a",
    "a" * 43 + ".____",  # no text
    "a" * 43 + ".YW5u\n",
    "a" * 43 + ".YW5u=",
    "a" * 43 + "." + "A" * 5000,
    "sess:*",
    "\uff41" * 43 + ".YW5u",
    new_token(b"x" * 32, "ann"),
    new_token(b"x" * 32, "{}*:\n\x00"),
    new_token(b"x" * 32, "\U0010ffff" * 128),
]


@everywhere
async def test_a_token_that_a_client_made_up_is_never_adopted(store: Store, sessions: Sessions[AppSession]) -> None:
    mine = await sessions.create(AppSession(uid="ann"))
    before = await everything(store)
    for token in HOSTILE:
        assert await sessions.read(token) == Gone("unknown")
        assert await sessions.rotate(token) == Gone("unknown")
        assert await sessions.update(token, theme="dark") == Gone("unknown")
        assert await sessions.touch(token) is False
        assert await sessions.revoke(token) is False
        assert await sessions.revoke_others(token) == 0
    assert await everything(store) == before
    assert await sessions.read(mine.token)


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_malformed_tokens_cost_no_round_trip(store: Store, clock: Clock) -> None:
    relay = Relay(store)
    sessions = sessions_of(relay, clock)
    for token in HOSTILE[:11]:
        assert not await sessions.read(token)
    assert relay.log == []


@everywhere
async def test_stored_values_are_not_credentials(store: Store, sessions: Sessions[AppSession]) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    user = made.token.partition(".")[2]
    for forged in (made.id, f"{made.id}.{user}", f"sess:{made.id}"):
        assert await sessions.read(forged) == Gone("unknown")


@everywhere
async def test_the_token_of_one_user_is_not_another_users(sessions: Sessions[AppSession]) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    await sessions.create(AppSession(uid="bob"))
    secret = made.token.partition(".")[0]
    forged = f"{secret}.{base64.urlsafe_b64encode(b'bob').rstrip(b'=').decode()}"
    assert await sessions.read(forged) == Gone("unknown")


# --- storage -------------------------------------------------------------------------------------------------


async def happy_path(sessions: Sessions[AppSession], clock: Clock) -> list[str]:
    """One of each: the tokens that were issued on the way."""
    made = []
    for _ in range(7):
        clock.pass_ms(1)
        made.append(await sessions.create(AppSession(uid="ann")))
    rotated = await sessions.rotate(made[-1].token)
    assert rotated
    clock.pass_ms(120_000)
    assert await sessions.read(rotated.token)
    assert await sessions.update(rotated.token, theme="dark", provider_token="another token of the provider")
    assert await sessions.revoke(made[-2].token)
    assert await sessions.revoke_id("ann", made[-3].id)
    assert await sessions.revoke_others(rotated.token) == 2
    last = await sessions.create(AppSession(uid="ann"))
    return [one.token for one in (*made, rotated, last)]


@everywhere
async def test_no_issued_secret_is_stored(store: Store, sessions: Sessions[AppSession], clock: Clock) -> None:
    tokens = await happy_path(sessions, clock)
    held = await everything(store)
    assert b"dark" in held
    for secret in (*(token.partition(".")[0] for token in tokens), "token of the provider"):
        assert secret.encode() not in held
    for token in tokens:
        assert secret_part(token) not in held
        assert secret_part(token).hex().encode() not in held


@everywhere
async def test_nothing_that_is_logged_or_shown_has_a_secret(
    sessions: Sessions[AppSession], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(0):
        made = await sessions.create(AppSession(uid="ann"))
        tokens = await happy_path(sessions, clock)
        live = await sessions.read(tokens[-1])
        with pytest.raises(BadValue) as refused:
            await sessions.update(tokens[-1], seen="token of the provider")
    said = "".join([caplog.text, repr(made), repr(live), repr(sessions), str(refused.value)])
    assert isinstance(live, Live)
    assert "ann" in said
    for secret in (*(token.partition(".")[0] for token in (made.token, *tokens)), "token of the provider"):
        assert secret not in said
