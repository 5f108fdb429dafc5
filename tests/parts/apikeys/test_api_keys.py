"""API keys: a token works until it is revoked, and the store contains no credential."""

import pytest

from keystead import Keyspace, SortedSet, Store, Value, connect, never
from keystead.errors import BadDeclaration, BadValue
from keystead.parts.apikeys import ApiKeys
from keystead.parts.digest import digest
from tests.kits.conftest import Raw
from tests.parts.apikeys.conftest import everywhere


@everywhere
async def test_a_key_identifies_its_user_until_it_is_revoked(api_keys: ApiKeys) -> None:
    one, two = await api_keys.issue(42, "import"), await api_keys.issue(42, "export")
    assert [await api_keys.user_of(key.token) for key in (one, two)] == [42, 42]
    assert await api_keys.revoke(one.id) is True
    assert [await api_keys.user_of(key.token) for key in (one, two)] == [None, 42]
    assert await api_keys.revoke(one.id) is False


@everywhere
async def test_a_list_shows_no_secrets_and_no_revoked_keys(api_keys: ApiKeys, store: Store) -> None:
    issued = [await api_keys.issue(user, f"of {user}\x1b[2J") for user in (3, 1, 2)]
    await api_keys.revoke(issued[1].id)
    listed = await api_keys.list()
    assert {(key.id, key.user_id, key.name) for key in listed} == {
        (issued[0].id, 3, "of 3\\x1b[2J"),
        (issued[2].id, 2, "of 2\\x1b[2J"),
    }
    for key in issued:
        await api_keys.revoke(key.id)
    assert await api_keys.list() == []
    assert await Raw(store).keys() == set()


@everywhere
async def test_nothing_that_is_stored_or_nearly_right_opens_anything(api_keys: ApiKeys, store: Store) -> None:
    key = await api_keys.issue(42, "import")
    secret = key.token.removeprefix(f"ks_{key.id}_")
    assert secret.encode() not in await Raw(store).everything()
    other = "A" if key.token[-1] != "A" else "B"
    for wrong in (
        *("", key.id, secret, digest(key.token), f"ks_{key.id}_{digest(key.token)}", key.token[:-1], key.token + "A"),
        *(
            f" {key.token}",
            key.token.upper(),
            f"ks_{'0' * 16}_{secret}",
            f"{key.token[:-1]}{other}",
            "ks_*_x",
            "\ud800",
        ),
    ):
        assert await api_keys.user_of(wrong) is None, wrong
    for wrong_id in ("", "*", key.token, key.id.upper() + "g"):
        assert await api_keys.revoke(wrong_id) is False
    assert await api_keys.user_of(key.token) == 42


async def test_a_key_has_a_name_and_lives_in_a_family_of_keys() -> None:
    class Other(Keyspace):
        """Families that cannot hold API keys."""

        index = SortedSet("index", str, lifetime=never("a test"), doc="ids")
        text = Value("text:{id}", str, lifetime=never("a test"), doc="no key")

    async with connect("memory://") as store:
        keys = Other(store)
        with pytest.raises(BadDeclaration, match="ApiKey"):
            ApiKeys(keys.text, keys.index())  # type: ignore[arg-type]


@everywhere
async def test_a_key_without_a_name_is_refused(api_keys: ApiKeys) -> None:
    with pytest.raises(BadValue, match="name"):
        await api_keys.issue(1, " ")
    assert await api_keys.list() == []
