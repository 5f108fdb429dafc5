"""`keystead apikeys`, end to end."""

from typing import Any

from keystead import Store
from keystead.kits.sessiondata import SessionData, SessionDataKeys
from tests.cli.program import Program, output


def user_of(program: Program, token: str) -> int | None:
    async def work(store: Store) -> int | None:
        return await SessionData(SessionDataKeys(store)).api_keys.user_of(token)

    user: int | None = program.store(work)
    return user


def test_a_key_is_issued_listed_without_its_secret_and_revoked(program: Program) -> None:
    assert program.keystead("apikeys", "list").stdout == "there are no API keys\n"
    issued = program.keystead("apikeys", "issue", "42", "nightly import")
    token = issued.stdout.strip()
    assert user_of(program, token) == 42
    listed = program.keystead("apikeys", "list")
    key_id = token.split("_")[1]
    assert listed.stdout.startswith(f"{key_id}  user 42  since ")
    assert listed.stdout.endswith("UTC  nightly import\n")
    assert f"revoke {key_id}" in issued.stderr
    everything: Any = output(program.keystead("apikeys", "list", "--json"))
    [told] = everything
    assert (told["id"], told["user_id"], told["name"]) == (key_id, 42, "nightly import")
    assert token.split("_", 2)[2] not in listed.stdout + str(told)
    revoked = program.keystead("apikeys", "revoke", key_id)
    assert (revoked.returncode, revoked.stdout) == (0, "revoked\n")
    assert user_of(program, token) is None
    again = program.keystead("apikeys", "revoke", key_id)
    assert again.returncode == 1
    assert again.stdout.startswith("there is no such API key; ")


def test_a_whole_key_that_is_pasted_is_revoked_and_is_shown_nowhere(program: Program) -> None:
    token = program.keystead("apikeys", "issue", "42", "leaked").stdout.strip()
    revoked = program.keystead("apikeys", "revoke", token)
    assert (revoked.returncode, revoked.stdout) == (0, "revoked\n")
    assert user_of(program, token) is None
    assert token.split("_", 2)[2] not in revoked.stderr


def test_an_unknown_role_is_refused_before_a_key_is_created_in_the_wrong_store(program: Program) -> None:
    wrong = program.keystead("apikeys", "issue", "42", "import", "--store", "durabel=sqlite:///other.db")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no family has the role 'durabel'" in wrong.stderr
    assert not (program.folder / "other.db").exists()
    assert program.keystead("apikeys", "list").stdout == "there are no API keys\n"
