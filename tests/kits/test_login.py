"""The key document of the login kit: sessions and OAuth state."""

from datetime import UTC, datetime
from typing import Any

import pytest

from keystead import KeyRing, Store
from keystead.kits.login import AuthState, LoginKeys, PwaSession, PwaSessionMetadata, Session
from keystead.parts.sessions import Policy, Sessions
from tests.kits.conftest import Raw, lifetimes, rows, rows_of, shape, without_seals
from tests.kits.writes import each_write

# The rows of the document, and the two that only the running system has.
DOCUMENT = {
    "sess:{sid}": "Value",
    "user:{uid}:sessions": "Set",
    "discord:auth:{state}": "Value",
    "lock:sess:{sid}": "Value",
    "discord:pwa-session:{state}": "Value",
    "rl:{name}:{window}:{client}": "Counter",
}
# What the document does not know: other providers, a login without its cookie, programs, rotation, why a session ended,
# the end of the provider's tokens, what a user chose, and who did what.
NEW = {
    "oauth:auth:{provider}:{state}": "Value",
    "oauth:pwa-session:{provider}:{state}": "Value",
    "login:confirm:{token}": "Value",
    "login:refresh:{token}": "Value",
    "next:sess:{sid}": "Value",
    "end:sess:{sid}": "Value",
    "login:revoke:{sid}": "Value",
    "login:preferences:{uid}": "Value",
    "audit:login": "Log",
}
SESSION = Session(
    uid="123456789012345678",
    name="ユーザー名",
    avatar="a_0123456789abcdef",
    access_token="the access token",
    refresh_token="the refresh token",
    scope="identify guilds",
    token_type="Bearer",
    access_expires_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    created_at=datetime(2023, 7, 22, 4, 26, 40, tzinfo=UTC),
    last_seen_at=datetime(2023, 7, 22, 4, 26, 40, tzinfo=UTC),
    ver=1,
)
STATE = AuthState(verifier="the verifier", login_context="pwa", claim_token_digest="c2hhLTI1Ng==")
BRIDGE = PwaSession(
    sid="the sid of the cookie",
    user_id=SESSION.uid,
    login_context="pwa",
    issued_at=SESSION.created_at,
    metadata=PwaSessionMetadata(state_restored_from_kv=True),
    claim_token_digest="c2hhLTI1Ng==",
)


@pytest.fixture
def keys(store: Store, ring: KeyRing) -> LoginKeys:
    return LoginKeys(store, seal=ring)


def test_every_row_of_the_document_is_a_family() -> None:
    assert rows_of(LoginKeys) == rows(DOCUMENT | NEW)


def test_keys_that_are_not_in_the_document_are_marked_new() -> None:
    new = {name for name, family in LoginKeys.families.items() if family.changed.startswith("New")}
    assert {shape(LoginKeys.families[name].pattern.display) for name in new} == set(rows(NEW))


def test_the_lifetimes_are_those_of_the_document() -> None:
    assert lifetimes(LoginKeys) == {
        "session": "30 days after the last use; touched at most once in 1 minute",
        "user_sessions": "30 days after the last use; touched at most once in 1 minute",
        "auth_state": "10 minutes",
        "pwa_session": "10 minutes",
        "session_lock": "5 seconds",
        "oauth_state": "10 minutes",
        "oauth_session": "10 minutes",
        "login_confirm": "10 minutes",
        "refresh": "30 days",
        "session_successor": "10 seconds",
        "session_end": "1 day",
        "revocation": "2 days",
        "preferences": "365 days",
        "audit": "90 days after the last use; touched at most once in 1 hour",
        "guesses": "1 minute 10 seconds",
    }


async def test_the_default_policy_fits_the_key_lifetimes(keys: LoginKeys) -> None:
    sessions = Sessions(keys.session, successors=keys.session_successor, ends=keys.session_end)
    assert (sessions.policy.idle_ms, sessions.policy.cap) == (Policy().idle_ms, 5)


async def test_login_writes_the_documented_keys_and_logout_deletes_them(keys: LoginKeys, raw: Raw) -> None:
    sessions = Sessions(keys.session, successors=keys.session_successor, ends=keys.session_end)
    made = await sessions.create(SESSION)
    await keys.session_lock(made.id).add("the holder")
    listed = f"user:{SESSION.uid}:sessions"
    assert await raw.keys() == {f"sess:{made.id}", listed, f"lock:sess:{made.id}"}
    assert await raw.lives(f"sess:{made.id}", "30d")
    assert await raw.lives(listed, "30d")
    held = await raw.everything()
    for secret in (made.token, made.token.partition(".")[0], SESSION.access_token, SESSION.refresh_token):
        assert secret.encode() not in held
    assert await sessions.revoke(made.token) is True
    assert await raw.keys() == set()


async def test_a_late_write_does_not_undo_a_logout(keys: LoginKeys, raw: Raw) -> None:
    sessions = Sessions(keys.session)
    made = await sessions.create(SESSION)
    await raw.ask("SREM", f"user:{SESSION.uid}:sessions", made.id)  # logged out, and not yet cleaned up
    assert await keys.session(made.id).replace(SESSION) is True
    assert await keys.session(made.id).touch() is True
    assert await keys.session(made.id).change(lambda session: session) == SESSION
    assert await raw.ask("EXISTS", f"user:{SESSION.uid}:sessions") == 0
    assert not await sessions.read(made.token)


async def test_keys_are_written_as_in_the_document(keys: LoginKeys) -> None:
    assert keys.session(sid="q3-Ab_9").key == "sess:q3-Ab_9"
    assert keys.user_sessions(uid="123").key == "user:123:sessions"
    assert keys.auth_state(state="St-4te_").key == "discord:auth:St-4te_"
    assert keys.pwa_session(state="St-4te_").key == "discord:pwa-session:St-4te_"
    assert keys.session_lock(sid="q3-Ab_9").key == "lock:sess:q3-Ab_9"


async def test_a_session_is_stored_as_in_the_document(keys: LoginKeys, raw: Raw) -> None:
    await keys.session(sid="s1").set(SESSION)
    assert without_seals(await raw.ask("GET", "sess:s1")) == (
        '{"uid":"123456789012345678","name":"ユーザー名","avatar":"a_0123456789abcdef","access_token":"*",'
        '"refresh_token":"*","scope":"identify guilds","token_type":"Bearer","access_expires_at":1700000000000,'
        '"created_at":1690000000000,"last_seen_at":1690000000000,"ver":1}'
    )
    assert await keys.session(sid="s1").get() == SESSION


async def test_a_user_without_an_avatar_gets_a_session(keys: LoginKeys, raw: Raw) -> None:
    await keys.session(sid="s1").set(SESSION.model_copy(update={"avatar": None}))
    assert b'"avatar":null' in await raw.ask("GET", "sess:s1")


async def test_a_pending_sign_in_has_only_the_needed_fields(keys: LoginKeys, raw: Raw) -> None:
    await keys.auth_state(state="x").set(AuthState(verifier="the verifier"))
    assert without_seals(await raw.ask("GET", "discord:auth:x")) == '{"verifier":"*"}'
    await keys.auth_state(state="x").set(STATE)
    stored = without_seals(await raw.ask("GET", "discord:auth:x"))
    assert stored == '{"verifier":"*","loginContext":"pwa","claimTokenDigest":"c2hhLTI1Ng=="}'
    assert await keys.auth_state(state="x").consume() == STATE
    assert await keys.auth_state(state="x").consume() is None


async def test_a_claimable_session_is_stored_as_in_the_running_system(keys: LoginKeys, raw: Raw) -> None:
    await keys.pwa_session(state="x").set(BRIDGE)
    assert without_seals(await raw.ask("GET", "discord:pwa-session:x")) == (
        '{"sid":"*","userId":"123456789012345678","loginContext":"pwa","issuedAt":1690000000000,'
        '"metadata":{"stateRestoredFromKv":true},"claimTokenDigest":"c2hhLTI1Ng=="}'
    )
    assert await keys.pwa_session(state="x").get() == BRIDGE


async def test_no_secret_is_in_the_store(keys: LoginKeys, raw: Raw) -> None:
    await keys.session(sid="digest-of-the-sid").set(SESSION)
    await keys.auth_state(state="digest-of-the-state").set(STATE)
    await keys.pwa_session(state="digest-of-the-state").set(BRIDGE)
    held = await raw.everything()
    assert b"identify guilds" in held
    for secret in (SESSION.access_token, SESSION.refresh_token, STATE.verifier, BRIDGE.sid):
        assert secret.encode() not in held
        assert secret not in repr((SESSION, STATE, BRIDGE))


@pytest.mark.parametrize(
    ("name", "value", "duration"),
    [
        ("session", SESSION, "30d"),
        ("user_sessions", "s1", "30d"),
        ("auth_state", STATE, "10m"),
        ("pwa_session", BRIDGE, "10m"),
        ("session_lock", "the holder", "5s"),
    ],
)
async def test_each_write_sets_the_documented_lifetime(
    keys: LoginKeys, raw: Raw, name: str, value: Any, duration: str
) -> None:
    key = getattr(keys, name)("x1")
    async for verb in each_write(key, value):
        assert await raw.lives(key.key, duration), verb


async def test_a_login_lists_the_session_and_sets_30_days(keys: LoginKeys, raw: Raw) -> None:
    await keys.session(sid="s1").add(SESSION)
    assert await raw.ask("SMEMBERS", "user:123456789012345678:sessions") == {b"s1"}
    assert await raw.lives("user:123456789012345678:sessions", "30d")


async def test_a_logout_deletes_its_session_and_keeps_others(keys: LoginKeys, raw: Raw) -> None:
    await keys.session(sid="s1").add(SESSION)
    await keys.session(sid="s2").add(SESSION)
    await keys.session_lock(sid="s1").add("the holder")
    assert await keys.session(sid="s1").delete() is True
    assert await raw.keys() == {"sess:s2", "user:123456789012345678:sessions"}
    assert await raw.ask("SMEMBERS", "user:123456789012345678:sessions") == {b"s2"}
    assert await keys.session(sid="s1").replace(SESSION) is False


async def test_ended_sessions_are_pruned_from_the_list(keys: LoginKeys, raw: Raw) -> None:
    for sid in ("s1", "s2", "s3"):
        await keys.session(sid=sid).add(SESSION)
    await raw.ask("DEL", "sess:s2")  # as if it had expired
    assert await keys.user_sessions(uid=SESSION.uid).live() == {"s1", "s3"}
    assert await raw.ask("SMEMBERS", "user:123456789012345678:sessions") == {b"s1", b"s3"}
