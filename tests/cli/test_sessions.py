"""`keystead sessions`, end to end."""

import getpass
import json
import socket
from typing import Any

import pytest

from keystead import Store
from keystead.kits.login import LoginKeys, Session
from keystead.parts.outbox import OutboxKeys
from keystead.parts.sessions import Gone, Sessions
from keystead.schema import KeyRing
from tests.cli.program import SEAL_KEYS, Program, assert_one_sentence, output

RING = KeyRing.from_text(SEAL_KEYS)


def sessions_of(store: Store) -> Sessions[Session]:
    keys = LoginKeys(store, seal=RING)
    return Sessions(keys.session, successors=keys.session_successor, ends=keys.session_end)


def sign_in(program: Program, *users: str) -> list[str]:
    """Sign in each of these users. Returns the tokens."""

    async def work(store: Store) -> list[str]:
        part = sessions_of(store)
        record = dict.fromkeys(("access_token", "refresh_token", "scope", "token_type"), "s3cret") | {"avatar": None}
        times: dict[str, Any] = dict.fromkeys(("access_expires_at", "created_at", "last_seen_at"), 0)
        return [
            (await part.create(Session.model_validate({"uid": user, "name": "Ann", **record, **times}))).token
            for user in users
        ]

    tokens: list[str] = program.store(work)
    return tokens


def end_reasons(program: Program, tokens: list[str]) -> list[str | None]:
    """Why the session of each token is gone; None if it is alive."""

    async def work(store: Store) -> list[str | None]:
        found = [await sessions_of(store).read(token) for token in tokens]
        return [one.reason if isinstance(one, Gone) else None for one in found]

    reasons: list[str | None] = program.store(work)
    return reasons


def keystead(program: Program, *arguments: str) -> Any:
    return program.keystead("sessions", *arguments, KEYSTEAD_SEAL_KEYS=SEAL_KEYS)


def test_a_listing_shows_the_sessions_of_one_user_and_no_secret(program: Program) -> None:
    tokens = sign_in(program, "ann", "ann", "bob")
    found = keystead(program, "list", "ann", "--json")
    assert len(output(found)) == 2
    assert "s3cret" not in found.stdout
    assert [token for token in tokens if token in found.stdout or token.split(".")[0] in found.stdout] == []
    assert len(keystead(program, "list", "ann").stdout.splitlines()) == 2
    assert keystead(program, "list", "nobody").stdout.startswith("nobody has no sessions; ")


def test_without_a_user_it_lists_users_with_sessions(program: Program) -> None:
    assert keystead(program, "list").stdout == "there are no sessions\n"
    sign_in(program, "ann", "ann", "bob")
    assert sorted(keystead(program, "list").stdout.splitlines()) == ["ann  2 sessions", "bob  1 session"]
    users: Any = output(keystead(program, "list", "--json"))
    assert {one["user"]: one["sessions"] for one in users} == {"ann": 2, "bob": 1}


def test_only_the_sessions_of_the_user_end(program: Program) -> None:
    tokens = sign_in(program, "ann", "ann", "bob")
    result = keystead(program, "end", "ann", "--yes")
    assert (result.returncode, result.stdout) == (0, "ended 2 sessions of ann\n")
    assert end_reasons(program, tokens) == ["revoked", "revoked", None]


def test_one_session_ends_by_its_id(program: Program) -> None:
    tokens = sign_in(program, "ann", "ann")
    listed: Any = output(keystead(program, "list", "ann", "--json"))
    result = keystead(program, "end", "ann", "--id", listed[0]["id"], "--yes", "--json")
    assert output(result) == {"user": "ann", "id": listed[0]["id"], "found": 1, "ended": 1}
    assert sorted(map(str, end_reasons(program, tokens))) == ["None", "revoked"]


def test_the_sessions_of_all_users_end(program: Program) -> None:
    tokens = sign_in(program, "ann", "bob", "bob")
    assert keystead(program, "end", "--everyone", "--dry-run").stdout == "would end 3 sessions of all users\n"
    assert end_reasons(program, tokens) == [None, None, None]
    result = keystead(program, "end", "--everyone", "--yes")
    assert (result.returncode, result.stdout) == (0, "ended 3 sessions of all users\n")
    assert end_reasons(program, tokens) == ["revoked"] * 3


def test_without_sessions_to_end_the_exit_code_is_1(program: Program) -> None:
    [token] = sign_in(program, "ann")
    assert keystead(program, "end", "bob", "--yes").returncode == 1
    assert keystead(program, "end", "ann", "--id", "A" * 43, "--yes").returncode == 1
    assert end_reasons(program, [token]) == [None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("end", "--yes"), "--everyone"),
        (("end", "ann", "--everyone", "--yes"), "--everyone"),
        (("end", "ann"), "--yes"),
        (("list", "ann", "--family", "session"), "myapp.keys:AppKeys.session"),
        (("list", "ann", "--family", "login:LoginKeys.nothing"), "the families are"),
        (("list", "ann", "--family", "myapp.keys:AppKeys.session"), "admits"),
    ],
)
def test_usage_errors_are_one_line(program: Program, arguments: tuple[str, ...], said: str) -> None:
    assert_one_sentence(keystead(program, *arguments), 2, said)


def operator_entries(program: Program) -> list[dict[str, Any]]:
    """The audit log entries of operators, from `keystead audit`."""
    found = program.keystead("audit", "login", "--json", KEYSTEAD_SEAL_KEYS=SEAL_KEYS)
    return [one for one in map(json.loads, found.stdout.splitlines()) if one["who"].startswith("operator:")]


def test_sessions_ended_by_an_operator_are_in_the_audit_log(program: Program) -> None:
    sign_in(program, "ann", "ann", "bob", "cid")
    listed: Any = output(keystead(program, "list", "ann", "--json"))
    keystead(program, "end", "ann", "--id", listed[0]["id"], "--yes")
    keystead(program, "end", "ann", "--yes")
    keystead(program, "end", "--everyone", "--dry-run")  # which ends nothing
    keystead(program, "end", "--everyone", "--yes")
    found = operator_entries(program)
    assert [(one["event"], one.get("what")) for one in found] == [
        ("session-revoked", listed[0]["id"]),
        ("all-sessions-revoked", "login:ann"),
        ("everyone-revoked", None),
        ("everyone-revoked", None),
    ]
    assert [one.get("why") for one in found[2:]] == ["begins", "2 sessions of 2 users have ended"]
    assert {(one["who"], one["where"]) for one in found} == {(f"operator:{getpass.getuser()}", socket.gethostname())}


def test_sessions_ended_by_an_operator_are_revoked_at_the_provider(program: Program) -> None:
    sign_in(program, "ann", "bob")
    keystead(program, "end", "--everyone", "--yes")

    async def waiting(store: Store) -> list[str]:
        keys = LoginKeys(store, seal=RING)
        queues = [key.key async for key in OutboxKeys(store).queue.scan()]
        assert len(queues) == 2
        return [record.refresh_token async for key in keys.revocation.scan() if (record := await key.get())]

    assert program.store(waiting) == ["s3cret", "s3cret"]


def test_without_the_seal_keys_sessions_still_end(program: Program) -> None:
    tokens = sign_in(program, "ann", "bob")
    result = program.keystead("sessions", "end", "--everyone", "--yes")
    assert result.returncode == 0, result.stderr
    assert end_reasons(program, tokens) == ["revoked", "revoked"]
