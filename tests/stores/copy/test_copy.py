"""A copy never harms the target, resumes after an interruption, and reports problems."""

import stat
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.stores import Command
from keystead.stores.commands import Call, read
from keystead.stores.copy import Copied, CopyLost, NoProgress, TransferProgress, copy, survey
from keystead.stores.copy.journal import Journal
from keystead.stores.copy.passes import Copier
from keystead.stores.copy.verification import verify
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from keystead.stores.transfer.reader import Reader
from keystead.stores.transfer.records import Record, set_command
from keystead.stores.transfer.writer import Writer
from tests.stores.backup.contents import DAY_MS, contents, now_ms
from tests.stores.copy.conftest import files, own
from tests.stores.copy.interference import EVERY_KIND, meanwhile

HELD = (b"string", -1, b"theirs")
ONE = Path("one.progress")


@pytest.fixture
async def source() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


@pytest.fixture
async def target() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


async def sessions(store: Store, count: int) -> None:
    ends_ms = await now_ms(store) + DAY_MS
    await store.run([("SET", f"sess:{n}", n, "PXAT", ends_ms + n) for n in range(count)])


def begin_anew() -> None:
    ONE.unlink()


def another(folder: Path) -> Path:
    """The progress file of a copy between two other stores."""
    path = folder / "another.progress"
    Journal(path, "redis://one:6379/0", "redis://other:6379/0").close()
    return path


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


class Killed(Exception):
    """Simulates a kill: nothing after it is executed."""


def after(keys: int) -> Callable[[TransferProgress], None]:
    def on_progress(now: TransferProgress) -> None:
        if now.done >= keys:
            raise Killed

    return on_progress


# --- existing keys ------------------------------------------------------------------------------------------


async def test_an_existing_key_is_kept_and_named(source: Store, target: Store) -> None:
    await source.run([("SET", "a", "1"), ("HSET", "b", "f", "1"), ("SET", "c", "1"), ("SET", "same", "1")])
    await target.run([("SET", "a", "theirs"), ("SET", "b", "theirs"), ("SET", "same", "1"), ("SET", "other", "theirs")])
    before = await own(target)
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.equal, copied.in_the_way, copied.is_whole) == (1, 1, 2, False)
    assert sorted(copied.examples["in_the_way"]) == ["a", "b"]
    assert await own(target) == {**before, b"c": (b"string", -1, b"1")}
    found = await survey(source, target, progress=ONE)
    assert (found.new, found.equal, found.in_the_way, sorted(found.examples)) == (0, 2, 2, ["a", "b"])


async def test_overwrite_puts_the_keys_of_the_source_in_their_place(source: Store, target: Store) -> None:
    await source.run([("SET", "a", "1"), ("HSET", "b", "f", "1")])
    await target.run([("SET", "a", "theirs"), ("SET", "b", "theirs"), ("SET", "other", "theirs")])
    assert not (await copy(source, target, progress=ONE)).is_whole
    copied = await copy(source, target, progress=ONE, overwrite=True)
    assert (copied.written, copied.is_whole) == (2, True)
    assert await own(target) == {**await contents(source), b"other": HELD}


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_key_that_comes_to_be_at_the_last_moment_is_not_written_over(
    kind: str, source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.run([EVERY_KIND[kind][0]])
    meanwhile(monkeypatch, target, ("SET", "key", "theirs"))
    copied = await copy(source, target, progress=ONE)
    assert (copied.in_the_way, copied.written) == (1, 0)
    assert await own(target) == {b"key": HELD}


# --- resuming -----------------------------------------------------------------------------------------------


async def test_an_interrupted_copy_resumes_and_writes_nothing_twice(source: Store, target: Store, here: Path) -> None:
    await sessions(source, 6_000)
    with pytest.raises(Killed):
        await copy(source, target, progress=ONE, on_progress=after(500))
    arrived = len(await own(target))
    assert 500 <= arrived < 6_000
    assert stat.S_IMODE((here / ONE).stat().st_mode) == 0o600
    copied = await copy(source, target, progress=ONE)
    assert (copied.resumed, copied.written, copied.keys) == (True, 6_000 - arrived, 6_000)
    assert await own(target) == await contents(source)
    assert files() == [str(ONE)]


async def test_the_move_uses_the_current_state(source: Store, target: Store) -> None:
    await sessions(source, 1_000)
    await source.run([("SADD", "user", "a", "b"), ("SET", "extra", "1")])
    await target.run([("SET", "extra", "theirs")])
    await copy(source, target, progress=ONE)
    await source.run(
        [
            *(("SET", "sess:1", "changed"), ("PEXPIREAT", "sess:2", await now_ms(source) + 7 * DAY_MS)),
            *(("DEL", "sess:3"), ("SADD", "user", "c"), ("SET", "new", "1"), ("DEL", "extra")),
            *(("DEL", "sess:4"), ("HSET", "sess:4", "another", "kind")),
        ]
    )
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.deleted, copied.is_whole) == (5, 1, True)
    assert await own(target) == {**await contents(source), b"extra": HELD}


async def test_changes_and_deletions_at_the_target_win(source: Store, target: Store) -> None:
    await sessions(source, 10)
    await source.run([("SET", "extra", "1")])
    await target.run([("SET", "extra", "theirs")])
    await copy(source, target, progress=ONE)
    later_ms = await now_ms(target) + 9 * DAY_MS
    await target.run([("SET", "sess:1", "theirs"), ("DEL", "sess:2"), ("PEXPIREAT", "sess:3", later_ms)])
    await target.run([("SET", "sess:4", "theirs"), ("PEXPIREAT", "sess:5", later_ms)])
    theirs = await own(target)
    # The old application still writes to the same keys; and two of them it deletes.
    await source.run([("SET", f"sess:{n}", "late") for n in (1, 2, 3)])
    await source.run([("DEL", "sess:4"), ("DEL", "sess:5")])
    for _ in range(2):
        copied = await copy(source, target, progress=ONE)
        assert (copied.written, copied.deleted) == (0, 0)
        assert (copied.changed_there, copied.deleted_there) == (2, 1)
        assert copied.examples["deleted_there"] == ["sess:2"]
        assert await own(target) == theirs


async def test_a_key_that_expired_at_the_target_and_was_prolonged_at_the_source_comes_again(source: Store) -> None:
    clock_ms = await now_ms(source)
    ahead_ms = 0
    async with SqliteStore(MEMORY, clock=lambda: clock_ms + ahead_ms) as target:
        await source.run([("SET", "key", "1", "PXAT", clock_ms + DAY_MS), ("SET", "extra", "1")])
        await target.run([("SET", "extra", "theirs")])
        await copy(source, target, progress=ONE)
        await source.run([("PEXPIREAT", "key", clock_ms + 5 * DAY_MS)])
        ahead_ms = 2 * DAY_MS
        copied = await copy(source, target, progress=ONE)
        assert (copied.written, copied.deleted_there) == (1, 0)
        assert await target.run([("PEXPIRETIME", "key")]) == [clock_ms + 5 * DAY_MS]
        ahead_ms = 6 * DAY_MS
        copied = await copy(source, target, progress=ONE)
        assert (copied.written, copied.deleted, copied.deleted_there) == (0, 0, 0)


async def test_a_key_that_expires_before_the_check_does_not_count_as_deleted(
    source: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ms = await now_ms(source)
    ahead_ms = 0
    async with SqliteStore(MEMORY, clock=lambda: clock_ms + ahead_ms) as target:
        await source.run([("SET", "key", "1", "PXAT", clock_ms + DAY_MS), ("SET", "extra", "1")])
        await copy(source, target, progress=ONE)
        await source.run([("PEXPIREAT", "key", clock_ms + 5 * DAY_MS)])
        records = Reader.read

        async def late(self: Reader, keys: Sequence[bytes]) -> list[Record]:
            nonlocal ahead_ms
            ahead_ms = 2 * DAY_MS if self._store is target else 0
            return await records(self, keys)

        monkeypatch.setattr(Reader, "read", late)
        copied = await copy(source, target, progress=ONE, verified=False)
        assert (copied.written, copied.deleted_there) == (1, 0)
        assert await target.run([("PEXPIRETIME", "key")]) == [clock_ms + 5 * DAY_MS]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_kill_around_the_step_leaves_no_uncertain_key(
    kind: str, moment: str, source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, changed, _ = EVERY_KIND[kind]
    await source.run([made])
    add = Writer.add

    async def killed(self: Writer, records: list[Record]) -> list[Record]:
        if moment == "after":
            await add(self, records)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", killed)
        with pytest.raises(Killed):
            await copy(source, target, progress=ONE)
    await source.run([changed])  # so that what was written is not what is there now
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.ours, copied.in_the_way, copied.is_whole) == (1, 1, 0, True)
    assert await own(target) == await contents(source)


async def test_keys_written_before_a_kill_are_not_written_again(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions(source, 100)
    add = Writer.add

    async def killed(self: Writer, records: list[Record]) -> list[Record]:
        await add(self, records)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", killed)
        with pytest.raises(Killed):
            await copy(source, target, progress=ONE)
    arrived = len(await own(target))
    assert arrived
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.ours, copied.is_whole) == (100 - arrived, 100, True)


async def test_a_target_that_lost_everything_is_not_treated_as_deleted(source: Store, target: Store) -> None:
    await sessions(source, 100)
    await source.run([("SET", "extra", "1")])
    await target.run([("SET", "extra", "theirs")])
    await copy(source, target, progress=ONE)
    async with connect("memory://") as emptied:
        with pytest.raises(CopyLost, match="add --start-over to start over"):
            await copy(source, emptied, progress=ONE)
        assert await contents(emptied) == {}
        begin_anew()
        assert (await copy(source, emptied, progress=ONE)).written == 101


# --- races --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["sqlite", "valkey"])
@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_change_between_check_and_write_wins(
    kind: str, url: str, source: Store, url_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, changed, theirs = EVERY_KIND[kind]
    for interference in (theirs, ("PEXPIREAT", "key", 2_000_000_000_000), ("DEL", "key"), ("SADD", "key2", "x")):
        async with connect(url_of(url)) as target:
            await source.run([("DEL", "key"), ("DEL", "extra"), made, ("SET", "extra", "1")])
            await target.run([("SET", "extra", "theirs")])
            await copy(source, target, progress=ONE)
            await source.run([changed])
            with monkeypatch.context() as patch:
                outcomes = meanwhile(patch, target, interference)
                copied = await copy(source, target, progress=ONE)
            expected = {"key": await seen(target)}
            begin_anew()
            if interference[1] == "key2":  # the key itself was not touched
                assert ([bool(one) for one in outcomes], copied.written) == ([True], 1)
                assert expected["key"] == await seen(source)
                continue
            assert ([bool(one) for one in outcomes], copied.written) == ([False], 0)
            assert copied.deleted_there == (interference[0] == "DEL")
            assert copied.changed_there == (interference[0] != "DEL")
            async with connect("memory://") as application:
                await application.run([made, interference])
                assert expected["key"] == await seen(application)


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_key_changed_before_its_delete_is_kept(
    kind: str, source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, theirs = EVERY_KIND[kind]
    await source.run([made, ("SET", "extra", "1")])
    await target.run([("SET", "extra", "theirs")])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "key")])
    with monkeypatch.context() as patch:
        outcomes = meanwhile(patch, target, theirs)
        copied = await copy(source, target, progress=ONE)
    assert ([bool(one) for one in outcomes], copied.deleted) == ([False], 0)
    async with connect("memory://") as application:
        await application.run([made, theirs])
        assert await seen(target) == await seen(application)


async def seen(store: Store) -> Any:
    return (await contents(store)).get(b"key")


# --- reports ------------------------------------------------------------------------------------------------


async def test_verification_finds_differences_but_not_later_changes_at_the_source(source: Store, target: Store) -> None:
    await sessions(source, 20)
    with Journal(ONE, source.url, target.url) as notes:
        copier = Copier(source, target, notes)
        await copier.begin()
        await copier.run_pass()
        await target.run([("DEL", "sess:1"), ("SET", "sess:2", "wrong"), ("PEXPIREAT", "sess:3", 2_000_000_000_000)])
        await target.run([("DEL", "sess:4"), ("HSET", "sess:4", "a", "1")])
        await source.run([("SET", "sess:5", "changed"), ("DEL", "sess:6")])
        verified = await verify(source, target, notes)
    compared = verified.compared
    assert (compared.missing, compared.other_value, compared.other_expiry, compared.other_kind) == (1, 1, 1, 1)
    assert compared.examples["missing"] == ["sess:1"]
    assert (compared.equal, verified.changed_since, verified.deleted_since) == (14, 1, 1)


async def test_only_keys_that_match_are_copied_and_only_those_are_deleted(source: Store, target: Store) -> None:
    await sessions(source, 10)
    await source.run([("SET", "user:1", "1"), ("SET", "sess:extra", "1")])
    await target.run([("SET", "user:1", "theirs"), ("SET", "sess:extra", "theirs")])
    assert (await copy(source, target, progress=ONE, match="sess:*")).written == 10
    await source.run([("DEL", "sess:1"), ("DEL", "user:1"), ("DEL", "sess:extra")])
    copied = await copy(source, target, progress=ONE, match="sess:*")
    assert (copied.deleted, copied.is_whole) == (1, True)
    assert (await own(target)).keys() == {
        *(b"sess:%d" % n for n in range(10) if n != 1),
        *(b"user:1", b"sess:extra"),
    }


async def test_a_key_that_a_scan_returns_twice_is_copied_once(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions(source, 600)
    scan = source.scan

    async def twice(*args: Any, **options: Any) -> AsyncIterator[list[bytes]]:
        for _ in range(2):
            async for page in scan(*args, **options):
                yield [*page, *page[:5]]

    monkeypatch.setattr(source, "scan", twice)
    copied = await copy(source, target)
    assert (copied.written, copied.keys) == (600, 600)


async def test_a_key_that_a_scan_missed_is_neither_forgotten_nor_deleted(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted and made again while the store was scanned."""
    await source.run([("SET", "key", "1"), ("SET", "extra", "1")])
    await target.run([("SET", "extra", "theirs")])
    await copy(source, target, progress=ONE)
    await source.run([("SET", "key", "2")])

    async def nothing(*_: Any, **__: Any) -> AsyncIterator[list[bytes]]:
        yield []

    monkeypatch.setattr(source, "scan", nothing)
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.deleted) == (1, 0)
    assert await target.run([("GET", "key")]) == [b"2"]


# --- the progress file --------------------------------------------------------------------------------------


async def test_a_progress_file_belongs_to_one_copy_and_to_one_process(source: Store, target: Store, here: Path) -> None:
    with Journal(ONE, source.url, target.url), pytest.raises(NoProgress, match="another process uses"):
        await copy(source, target, progress=ONE)
    with pytest.raises(NoProgress, match="is the progress file of another copy"):
        await copy(source, target, progress=another(here))
    (here / "link").symlink_to(ONE)
    with pytest.raises(NoProgress, match="also accessible to other users"):
        await copy(source, target, progress=Path("link"))
    write("text", "no database" * 100)
    with pytest.raises(NoProgress, match="is not a progress file of a copy, or is damaged"):
        await copy(source, target, progress=Path("text"))
    with pytest.raises(NoProgress, match="there is no folder nowhere"):
        await copy(source, target, progress=Path("nowhere/one.progress"))
    assert await own(target) == {}


async def test_a_refused_run_removes_only_its_own_progress_file(source: Store, target: Store) -> None:
    await source.run([("SET", "sess:1", "1")])
    await copy(source, target, progress=Path("first.progress"))
    Journal(ONE, source.url, target.url).close()
    for path in (ONE, Path("new.progress")):
        with pytest.raises(NoProgress, match="was copied into"):
            await copy(source, target, progress=path)
    assert files() == ["first.progress", str(ONE)]


async def test_a_string_is_written_by_the_very_call_that_its_command_is_read_as() -> None:
    for at_ms in (None, 2_000_000_000_000):
        for only_if in (b"", b"NX"):
            deadline: Command = () if at_ms is None else ("PXAT", at_ms)
            expected = read(("SET", b"key", b"value", *deadline, *([only_if] if only_if else [])))
            made = set_command(Record(b"key", "string", at_ms, [b"value"]), only_if)
            assert isinstance(made, Call)
            assert (made.spec, list(made.args), made.options) == (expected.spec, expected.args, expected.options)


def test_a_copy_result_is_json_serializable() -> None:
    said = Copied(ours=2, equal=1, in_the_way=1, examples={"in_the_way": ["a"]}).as_json()
    assert (said["keys"], said["whole"], said["verified"], said["examples"]) == (3, False, None, {"in_the_way": ["a"]})
