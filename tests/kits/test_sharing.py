"""The key document of the sharing kit: short tokens and the clean-up of expired files."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from keystead import KeyRing, Store
from keystead.errors import BadValue
from keystead.kits.sharing import EdgeMeta, SharingKeys
from tests.kits.conftest import SLACK_MS, Raw, lifetimes, rows, rows_of, shape
from tests.kits.writes import each_write

DOCUMENT = {
    "receive:token:{short}": "Value",
    "receive:edge:index": "SortedSet",
    "receive:edge:meta:{id}": "Value",
}
# What the document does not have, and its promises need.
OURS = {
    "receive:link:{id}": "Value",
    "receive:edge:file:{path}": "Value",
    "receive:edge:gone:{path}": "Value",
    "receive:edge:retry:{id}": "Value",
    "receive:downloads:{id}": "Counter",
    "receive:wrong:{id}": "Counter",
    "receive:guess:{id}:{client}": "Counter",
    "receive:ticket:{id}:{ticket}": "Value",
    "receive:user:{user}:links": "SortedSet",
    "receive:edge:claim:{id}": "Value",
    "receive:past:{short}": "Value",
    "receive:files": "Value",
    "receive:stored:{owner}": "Counter",
    "receive:rl:{name}:{window}:{client}": "Counter",
    "audit:sharing": "Log",
    "audit:sharing:used": "Log",
    "audit:sharing:refused": "Log",
}
SEALED_LINK = "v1.AAECAwQFBgcICQoL.c2VhbGVkIGxpbms"
PATH = "user_prize/<ownerDiscordId>/<receiverDir>/<fileName>"


@pytest.fixture
def keys(store: Store, ring: KeyRing) -> SharingKeys:
    return SharingKeys(store, seal=ring)


def now() -> datetime:
    return datetime.now(UTC)


def test_every_documented_and_new_key_is_a_family() -> None:
    assert rows_of(SharingKeys) == rows(DOCUMENT | OURS)


def test_keys_missing_in_the_document_are_marked_new() -> None:
    added = [family for family in SharingKeys.families.values() if shape(family.pattern.display) in rows(OURS)]
    assert len(added) == len(OURS)
    assert all(family.changed.startswith(("New", "Not in the document")) for family in added)


def test_lifetimes_match_the_document_and_new_keys_are_bounded() -> None:
    assert lifetimes(SharingKeys) == {
        "token": "until `expires_at`, at most 14 days",
        "index": "never expires: emptied by the clean-up job",
        "meta": "never expires: removed by the clean-up job",
        "link": "until `expires_at`, at most 14 days",
        "file": "never expires: deleted with the meta of its upload",
        "gone": "1 hour",
        "retry": "30 days after the last use; touched at most once in 1 hour",
        "downloads": "until `expires_at`, at most 14 days",
        "wrong_passwords": "1 hour",
        "guesses": "1 hour",
        "ticket": "10 minutes after the last use; touched at most once in 1 minute",
        "links_of_user": "15 days after the last use; touched at most once in 1 hour",
        "claim": "until `until`, at most 2 minutes",
        "past": "until `forget_at`, at most 44 days",
        "files": "never expires: there is one per store",
        "stored": "30 days after the last use; touched at most once in 1 day",
        "requests": "1 minute 10 seconds",
        "audit": "90 days after the last use; touched at most once in 1 hour",
        "uses": "90 days after the last use; touched at most once in 1 hour",
        "refusals": "90 days after the last use; touched at most once in 1 hour",
    }


async def test_the_example_of_the_document_is_reproduced_byte_for_byte(keys: SharingKeys, raw: Raw) -> None:
    await keys.meta(id="ABC123DEFG").set(
        EdgeMeta(
            id="ABC123DEFG",
            blob_name=PATH,
            pathname=PATH,
            expires_at=datetime(2024, 12, 31, 15, tzinfo=UTC),
            short_token="s1AbCdEfGh",
        )
    )
    assert await raw.ask("GET", "receive:edge:meta:ABC123DEFG") == (
        b'{"id":"ABC123DEFG","blob_name":"user_prize/<ownerDiscordId>/<receiverDir>/<fileName>",'
        b'"pathname":"user_prize/<ownerDiscordId>/<receiverDir>/<fileName>",'
        b'"expires_at":"2024-12-31T15:00:00.000Z","short_token":"s1AbCdEfGh"}'
    )
    assert await raw.ask("ZRANGE", "receive:edge:index", 0, -1, "WITHSCORES") == [[b"ABC123DEFG", 1735657200000]]


async def test_the_seeded_entry_of_the_document_is_reproduced_byte_for_byte(keys: SharingKeys, raw: Raw) -> None:
    expired = datetime.fromtimestamp(1_700_000_000, UTC)
    meta = EdgeMeta(id="TESTKEY123", blob_name="user_prize/demo/demo.zip", expires_at=expired, short_token="short-demo")
    await keys.meta(id="TESTKEY123").set(meta)
    await keys.token(short="short-demo").set("TESTKEY123", expires_at=now() + timedelta(minutes=1))
    assert await raw.ask("GET", "receive:edge:meta:TESTKEY123") == (
        b'{"id":"TESTKEY123","blob_name":"user_prize/demo/demo.zip",'
        b'"expires_at":"2023-11-14T22:13:20.000Z","short_token":"short-demo"}'
    )
    assert await raw.ask("GET", "receive:token:short-demo") == b"TESTKEY123"
    assert await keys.meta(id="TESTKEY123").get() == meta


async def test_unset_fields_are_omitted_from_the_stored_json(keys: SharingKeys, raw: Raw) -> None:
    await keys.meta(id="ABC123DEFG").set(
        EdgeMeta(id="ABC123DEFG", pathname="p", expires_at=datetime(2024, 12, 31, 15, tzinfo=UTC))
    )
    assert await raw.ask("GET", "receive:edge:meta:ABC123DEFG") == (
        b'{"id":"ABC123DEFG","pathname":"p","expires_at":"2024-12-31T15:00:00.000Z"}'
    )


def test_an_upload_without_a_file_is_refused() -> None:
    with pytest.raises(ValidationError, match="blob_name or pathname"):
        EdgeMeta(id="ABC123DEFG", expires_at=now())


async def test_a_link_lives_until_its_expiry_for_every_kind_of_write(keys: SharingKeys, raw: Raw) -> None:
    expires_at = now() + timedelta(days=7)
    key = keys.token(short="s1AbCdEfGh")
    async for verb in each_write(key, SEALED_LINK, expires_at=expires_at):
        assert await raw.ask("GET", "receive:token:s1AbCdEfGh") == SEALED_LINK.encode(), verb
        left = timedelta(milliseconds=await raw.left_ms("receive:token:s1AbCdEfGh"))
        assert timedelta(0) <= expires_at - now() - left + timedelta(milliseconds=SLACK_MS), verb
        assert left <= timedelta(days=7), verb
        assert left > timedelta(days=7) - timedelta(milliseconds=SLACK_MS), verb


async def test_a_link_of_more_than_14_days_is_refused(keys: SharingKeys, raw: Raw) -> None:
    with pytest.raises(BadValue):
        await keys.token(short="x").add(SEALED_LINK, expires_at=now() + timedelta(days=14, minutes=1))
    with pytest.raises(BadValue):
        await keys.token(short="x").add(SEALED_LINK, expires_at=now() - timedelta(seconds=1))
    assert await raw.keys() == set()


async def test_a_taken_short_token_is_not_overwritten(keys: SharingKeys) -> None:
    expires_at = now() + timedelta(days=1)
    assert await keys.token(short="x").add(SEALED_LINK, expires_at=expires_at) is True
    assert await keys.token(short="x").add("another", expires_at=expires_at) is False
    assert await keys.token(short="x").get() == SEALED_LINK


async def test_the_keys_of_the_clean_up_do_not_expire(keys: SharingKeys, raw: Raw) -> None:
    meta = EdgeMeta(id="a", blob_name="b", expires_at=now() + timedelta(days=1))
    async for verb in each_write(keys.meta(id="a"), meta):
        assert await raw.lives("receive:edge:meta:a", None), verb
        assert await raw.lives("receive:edge:index", None), verb


async def test_the_clean_up_finds_only_expired_uploads(keys: SharingKeys) -> None:
    moment = now()
    for number, days in enumerate((-2, -1, 1)):
        meta = EdgeMeta(id=f"id{number}", blob_name="b", expires_at=moment + timedelta(days=days))
        await keys.meta(id=meta.id).set(meta)
    found = await keys.index().between(0, moment.timestamp() * 1000, limit=100)
    assert [member for member, _ in found] == ["id0", "id1"]


async def test_deleting_an_upload_deletes_its_short_token_and_index_entry(keys: SharingKeys, raw: Raw) -> None:
    expires_at = now() + timedelta(days=1)
    for name in ("gone", "kept"):
        await keys.token(short=f"short-{name}").add(SEALED_LINK, expires_at=expires_at)
        await keys.meta(id=name).add(
            EdgeMeta(id=name, blob_name="b", expires_at=expires_at, short_token=f"short-{name}")
        )
    assert await keys.meta(id="gone").delete() is True
    assert await raw.keys() == {"receive:edge:index", "receive:edge:meta:kept", "receive:token:short-kept"}
    assert await raw.ask("ZRANGE", "receive:edge:index", 0, -1) == [b"kept"]


async def test_deleting_an_upload_without_a_short_token_touches_no_link(keys: SharingKeys, raw: Raw) -> None:
    expires_at = now() + timedelta(days=1)
    await keys.token(short="other").add(SEALED_LINK, expires_at=expires_at)
    await keys.meta(id="a").add(EdgeMeta(id="a", blob_name="b", expires_at=expires_at))
    assert await keys.meta(id="a").delete() is True
    assert await raw.keys() == {"receive:token:other"}
