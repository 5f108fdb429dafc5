"""The audit log: an entry for each action, and for nothing else."""

import json
from datetime import UTC, datetime

import pytest

from keystead import Counter, Keyspace, Log, Store, Value, connect, never, sliding
from keystead.errors import BadValue, CrossSlot, Unreadable
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.digest import digest
from keystead.schema.times import moment
from tests.parts.audit.conftest import everywhere, in_one_step

NOW_MS = 4_000_000_000_000


class AppKeys(Keyspace):
    """Links, and their audit log."""

    link = Value("link:{id}", str, lifetime=never("a test"), doc="a link")
    count = Counter("links", lifetime=never("a test"), doc="how many there are")
    audit = Log("audit:app", AuditEntry, keep=5, lifetime=sliding("90d", touch_every="1h"), doc="what was done")
    events = Log("events", str, keep=5, lifetime=never("a test"), doc="no audit")


def keys_of(store: Store) -> AppKeys:
    return AppKeys(store, now_ms=lambda: NOW_MS)


async def stored(store: Store) -> list[dict[str, object]]:
    [entries] = await store.run([("XRANGE", "audit:app", "-", "+")])
    return [json.loads(fields[1]) for _, fields in entries]


@everywhere
async def test_an_entry_records_who_did_what_when_and_from_where(store: Store) -> None:
    audit = Audit(keys_of(store).audit())
    await audit.note("link-issued", who="user:42", what="ABC123", where="203.0.113.7", why="asked for")
    [entry] = await audit.latest(50)
    assert entry == AuditEntry(
        at=moment(NOW_MS), event="link-issued", who="user:42", what="ABC123", where="203.0.113.7", why="asked for"
    )


@everywhere
async def test_unknown_fields_are_omitted_from_stored_entries(store: Store) -> None:
    audit = Audit(keys_of(store).audit())
    await audit.note("clean-up", who="job", what="")
    assert await stored(store) == [{"at": NOW_MS, "event": "clean-up", "who": "job"}]
    [entry] = await audit.latest(1)
    assert (entry.what, entry.where, entry.why) == (None, None, None)


@in_one_step
async def test_an_entry_and_its_action_are_one_step(store: Store) -> None:
    keys = keys_of(store)
    audit = Audit(keys.audit())
    done = await keys.atomically(
        keys.link(id="a").add("https://example.com").required(),
        keys.count().increment(),
        audit.note("link-issued", what="a"),
    )
    assert done
    assert await keys.link(id="a").get() == "https://example.com"
    assert [entry.event for entry in await audit.latest(9)] == ["link-issued"]


@in_one_step
async def test_a_step_that_is_stopped_leaves_no_entry(store: Store) -> None:
    keys = keys_of(store)
    audit = Audit(keys.audit())
    await keys.link(id="a").add("first")
    done = await keys.atomically(
        audit.note("link-issued", what="a"), keys.link(id="a").add("second").required(), keys.count().increment()
    )
    assert not done
    assert done.stopped_at == 1
    assert await audit.latest(9) == []
    assert not await keys.audit().exists()


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_keys_of_two_slots_are_no_one_step_on_a_cluster(store: Store) -> None:
    keys = keys_of(store)
    audit = Audit(keys.audit())
    with pytest.raises(CrossSlot):
        await keys.atomically(keys.link(id="a").add("x").required(), audit.note("link-issued", what="a"))
    assert await audit.latest(9) == []
    assert await keys.link(id="a").get() is None


@everywhere
async def test_the_log_keeps_its_size_and_the_newest_come_first(store: Store) -> None:
    audit = Audit(keys_of(store).audit())
    for number in range(12):
        await audit.note("counted", what=str(number))
    assert [entry.what for entry in await audit.latest(50)] == ["11", "10", "9", "8", "7"]
    assert [entry.what for entry in await audit.latest(2)] == ["11", "10"]


@everywhere
async def test_an_entry_has_the_lifetime_of_its_family(store: Store) -> None:
    keys = keys_of(store)
    await Audit(keys.audit()).note("counted")
    left = await keys.audit().remaining()
    assert left is not None
    assert 89 <= left.days <= 90


async def test_the_moment_may_be_given() -> None:
    async with connect("memory://") as store:
        audit = Audit(keys_of(store).audit())
        await audit.note("counted", now=1_767_225_600_123)
        await audit.note("counted", now=datetime(2026, 1, 2, tzinfo=UTC))
        assert [entry.at for entry in await audit.latest(2)] == [
            datetime(2026, 1, 2, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC),
        ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\nlink-issued user:1", "a\\nlink-issued user:1"),
        ("\x1b[2J\x00\x7f\x85", "\\x1b[2J\\x00\\x7f\\x85"),
        ("\u202egpj.exe\u200b\ufeff", "\\u202egpj.exe\\u200b\\ufeff"),
        ("\ud800", "\\ud800"),
        ("Ünïcode 日本\u3000語", "Ünïcode 日本\u3000語"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("\n" * 5000, "\\n" * 99 + "\\…"),
    ],
)
async def test_untrusted_text_is_one_line_of_bounded_length(given: str, kept: str) -> None:
    async with connect("memory://") as store:
        audit = Audit(keys_of(store).audit())
        await audit.note("link-refused", who=given, what=given, where="w" * 1000, why="y" * 1000)
        [entry] = await audit.latest(1)
        assert (entry.who, entry.what) == (kept, kept)
        assert (len(entry.where or ""), len(entry.why or "")) == (100, 500)


@pytest.mark.parametrize("event", ["", "Link-Issued", "link issued", "link_issued", "-a", "a--b", "a\n", "é", "x" * 65])
async def test_an_event_is_a_word(event: str) -> None:
    async with connect("memory://") as store:
        with pytest.raises(BadValue, match="link-issued"):
            Audit(keys_of(store).audit()).note(event)


async def test_an_audit_is_a_key_of_a_log_of_entries() -> None:
    async with connect("memory://") as store:
        keys = keys_of(store)
        for wrong in (keys.audit, keys.events(), keys.link(id="a"), None):
            with pytest.raises(BadValue, match=r"Audit\(keys\.audit\(\)\)"):
                Audit(wrong)  # type: ignore[arg-type]


@everywhere
async def test_a_digest_identifies_the_secret(store: Store) -> None:
    audit, secret = Audit(keys_of(store).audit()), "the-token-that-opens-it"
    await audit.note("link-resolved", what=digest(secret))
    [raw] = await store.run([("XRANGE", "audit:app", "-", "+")])
    assert secret.encode() not in repr(raw).encode()
    assert [entry.what for entry in await audit.latest(1)] == [digest(secret)]


@everywhere
async def test_an_invalid_entry_is_reported(store: Store) -> None:
    await store.run([("XADD", "audit:app", "*", "data", b"{}")])
    with pytest.raises(Unreadable):
        await Audit(keys_of(store).audit()).latest(1)
