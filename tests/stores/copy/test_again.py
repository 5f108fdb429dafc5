"""A second copy updates the target, including deletions, and deletes nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Store, Value, connect, never
from keystead.schema.doctor import examine
from keystead.stores.copy import CopyLost, NoProgress, SourceEmptied, copy, follow, survey
from keystead.stores.copy.journal import Journal
from keystead.stores.copy.passes import LOST_KEYS, Copier, Passed
from keystead.stores.copy.verification import verify
from tests import servers
from tests.stores.backup.contents import DAY_MS, contents, now_ms
from tests.stores.copy.conftest import UrlOf, files, own
from tests.stores.copy.interference import EVERY_KIND

ONE = Path("one.progress")
THEIRS = (b"string", -1, b"theirs")


@pytest.fixture
async def source() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


@pytest.fixture
async def target() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


def move(path: Path, to: Path) -> Path:
    return path.rename(to)


@asynccontextmanager
async def pair(one: str, other: str, url_of: UrlOf) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores; Redis to Redis are two servers."""
    if one != other:
        async with connect(url_of(one)) as source, connect(url_of(other)) as target:
            yield source, target
        return
    with servers.redis() as second:
        async with connect(url_of(one)) as source, connect(second.url) as target:
            yield source, target


@pytest.mark.parametrize("overwrite", [False, True], ids=["", "overwrite"])
@pytest.mark.parametrize(("one", "other"), [("redis", "sqlite"), ("sqlite", "postgres"), ("redis", "redis")])
async def test_a_second_copy_deletes_only_keys_of_an_earlier_copy(
    one: str, other: str, overwrite: bool, url_of: UrlOf
) -> None:
    async with pair(one, other, url_of) as (source, target):
        ends_ms = await now_ms(source) + DAY_MS
        await source.run([("SET", f"sess:{n}", n, "PXAT", ends_ms + n) for n in range(300)])
        await source.run(
            [("HSET", "hash", "a", "1"), ("SADD", "set", "a"), ("SET", "same", "1"), ("SET", "stays", "1")]
        )
        await target.run([("SET", "before", "theirs"), ("SET", "same", "1")])
        assert (await copy(source, target)).is_whole

        await target.run([("SET", "after", "theirs"), ("SET", "sess:3", "theirs")])  # by the application, there
        deleted = ("sess:1", "sess:2", "sess:3", "hash", "set", "same")
        await source.run([*(("DEL", key) for key in deleted), ("SET", "stays", "changed"), ("SET", "new", "1")])
        found = await survey(source, target)
        assert (found.new, found.changed, found.gone, found.in_the_way) == (1, 1, 4, 0)

        copied = await copy(source, target, overwrite=overwrite)
        assert (copied.written, copied.deleted, copied.is_whole) == (2, 4, True)
        assert copied.verified is not None
        assert copied.verified.compared.differences == 0
        untouched = {b"before": THEIRS, b"after": THEIRS, b"sess:3": THEIRS, b"same": (b"string", -1, b"1")}
        assert await own(target) == {**await contents(source), **untouched}

        again = await copy(source, target, overwrite=overwrite)
        assert (again.written, again.deleted, again.is_whole) == (0, 0, True)


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_key_that_the_application_made_again_at_the_target_is_not_deleted(
    kind: str, source: Store, target: Store
) -> None:
    made, changed, _ = EVERY_KIND[kind]
    await source.run([made, ("SET", "other", "1")])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "key")])
    await target.run([("DEL", "key"), made, changed])
    theirs = await own(target)
    for _ in range(2):
        copied = await copy(source, target, progress=ONE)
        assert (copied.deleted, copied.written, copied.is_whole) == (0, 0, True)
        assert await own(target) == theirs


async def test_overwrite_takes_back_changes_at_the_target_but_no_deletions(source: Store, target: Store) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(5)])
    await target.run([("SET", "sess:4", "4")])  # equal before the copy
    await copy(source, target, progress=ONE)
    await target.run([("SET", "sess:1", "theirs"), ("DEL", "sess:2"), ("SET", "sess:4", "theirs")])
    theirs = await own(target)
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.changed_there, copied.deleted_there, copied.is_whole) == (0, 2, 1, True)
    assert await own(target) == theirs

    copied = await copy(source, target, progress=ONE, overwrite=True)
    assert (copied.written, copied.changed_there, copied.deleted_there, copied.is_whole) == (2, 0, 1, True)
    expected = await contents(source)
    del expected[b"sess:2"]
    assert await own(target) == expected

    await source.run([("DEL", "sess:1")])  # which now belongs to a copy
    assert (await copy(source, target, progress=ONE)).deleted == 1


async def test_a_key_deleted_at_the_source_and_changed_at_the_target_is_kept_even_with_overwrite(
    source: Store, target: Store
) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(3)])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "sess:1", "sess:2")])
    await target.run([("SET", "sess:1", "theirs")])
    copied = await copy(source, target, progress=ONE, overwrite=True)
    assert (copied.written, copied.deleted, copied.is_whole) == (0, 1, True)
    assert (await own(target)).keys() == {b"sess:0", b"sess:1"}


async def test_expired_keys_do_not_count_as_deleted(source: Store, target: Store) -> None:
    soon_ms = await now_ms(source) + 300
    await source.run([("SET", "gone", "1", "PXAT", soon_ms), ("SET", "stays", "1")])
    await copy(source, target, progress=ONE)
    while await source.run([("EXISTS", "gone")]) != [0] or await target.run([("EXISTS", "gone")]) != [0]:
        await target.run([("TIME",)])
    copied = await copy(source, target, progress=ONE)
    assert (copied.deleted, copied.deleted_there, copied.keys, copied.is_whole) == (0, 0, 1, True)


async def test_a_kill_while_deletions_propagate_leaves_none_undone(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(600)])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", f"sess:{n}") for n in range(500)])
    forget = Journal.forget
    for moment in ("before", "after"):
        left = 1

        def killed(self: Journal, ids: Any, moment: str = moment) -> None:
            nonlocal left
            if moment == "after":
                forget(self, ids)
                self.flush()
            if not left:
                raise RuntimeError("killed")
            left -= 1

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "forget", killed)
            with pytest.raises(RuntimeError, match="killed"):
                await copy(source, target, progress=ONE, allow_empty=True)
    assert (await copy(source, target, progress=ONE, allow_empty=True)).is_whole
    assert await own(target) == await contents(source)


@pytest.mark.matrix
async def test_a_second_copy_keeps_few_notes_in_memory_and_notes_nothing_twice(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(10_000)])
    await copy(source, target, progress=ONE, verified=False)
    flush, noted = Journal.flush, list[int]()

    def counted(self: Journal) -> None:
        noted.append(sum(len(rows) for _, rows in self._pending))
        flush(self)

    monkeypatch.setattr(Journal, "flush", counted)
    await copy(source, target, progress=ONE, verified=False)
    assert sum(noted) == 0
    await target.run([("SET", f"sess:{n}", "theirs") for n in range(10_000)])
    assert (await copy(source, target, progress=ONE, verified=False)).changed_there == 10_000
    assert sum(noted) == 10_000
    assert max(noted) < 5_000


async def test_the_comparison_counts_copied_keys_that_are_gone_at_the_source(source: Store, target: Store) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(10)])
    with Journal(ONE, source.url, target.url) as notes:
        copier = Copier(source, target, notes)
        await copier.begin()
        await copier.run_pass()
        await source.run([("DEL", "sess:1"), ("DEL", "sess:2")])  # after they were copied
        verified = await verify(source, target, notes)
    assert (verified.compared.equal, verified.compared.differences, verified.deleted_since) == (8, 0, 2)
    copied = await copy(source, target, progress=ONE)
    assert copied.deleted == 2
    assert copied.verified is not None
    assert copied.verified.deleted_since == 0


# --- without the progress of earlier copies -----------------------------------------------------------------


async def test_without_the_progress_file_of_an_earlier_run_it_refuses_and_names_it(
    source: Store, target: Store, here: Path
) -> None:
    await source.run([("SET", "sess:1", "1"), ("SET", "sess:2", "1")])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "sess:1")])
    before = await contents(target)
    other = Path("other.progress")
    for refused in (copy(source, target, progress=other, overwrite=True), survey(source, target, progress=other)):
        with pytest.raises(NoProgress, match=r"one\.progress on .* records which keys. Name it with --progress"):
            await refused
    assert await contents(target) == before
    assert files() == ["one.progress"]

    moved = move(ONE, here / "moved.progress")
    copied = await copy(source, target, progress=moved)
    assert (copied.deleted, copied.is_whole) == (1, True)


async def test_starting_over_keeps_deleted_keys_and_recognizes_its_own(source: Store, target: Store) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(5)])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "sess:1"), ("SET", "new", "1")])
    await target.run([("DEL", "sess:2")])
    copied = await copy(source, target, progress=ONE, start_over=True)
    assert (copied.written, copied.equal, copied.deleted, copied.is_whole) == (2, 3, 0, True)
    assert (await own(target)).keys() == {*(await contents(source)), b"sess:1"}
    await source.run([("DEL", "new"), ("DEL", "sess:3")])
    assert (await copy(source, target, progress=ONE)).deleted == 1  # not sess:3, which was there before


async def test_all_patterns_share_the_progress(source: Store, target: Store) -> None:
    await source.run([("SET", f"{kind}:{n}", n) for kind in ("sess", "user") for n in range(5)])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", "sess:1"), ("DEL", "user:1")])
    copied = await copy(source, target, progress=ONE, match="sess:*", overwrite=True)
    assert (copied.keys, copied.deleted, copied.is_whole) == (4, 1, True)
    assert (await own(target)).keys() == {*(await contents(source)), b"user:1"}
    assert (await copy(source, target, progress=ONE)).deleted == 1


@pytest.mark.parametrize("left", [0, 1, 899], ids=["all", "all but one", "a part"])
async def test_a_source_that_lost_its_data_empties_no_target(left: int, source: Store, target: Store) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(1_000)])
    await copy(source, target, progress=ONE)
    before = await own(target)
    gone = 1_000 - left
    async with connect("memory://") as emptied:
        await emptied.run([("TIME",), *(("SET", f"sess:{n}", n) for n in range(left))])
        for _ in range(2):
            with pytest.raises(SourceEmptied, match=f"^{gone:,} of the 1,000 keys that were copied .*--allow-empty$"):
                await copy(emptied, target, progress=ONE)
            assert await own(target) == before
        assert (await copy(emptied, target, progress=ONE, allow_empty=True)).deleted == gone
        assert await own(target) == await contents(emptied)
    assert files() == ([str(ONE)] if left else [])


async def test_up_to_a_tenth_of_the_keys_is_deleted_and_expired_ones_do_not_count(source: Store, target: Store) -> None:
    soon_ms = await now_ms(source) + 300
    await source.run([("SET", f"gone:{n}", n, "PXAT", soon_ms) for n in range(500)])
    await source.run([("SET", f"sess:{n}", n) for n in range(10 * LOST_KEYS)])
    await copy(source, target, progress=ONE)
    await source.run([("DEL", f"sess:{n}") for n in range(LOST_KEYS)])
    while await source.run([("EXISTS", "gone:1")]) != [0] or await target.run([("EXISTS", "gone:1")]) != [0]:
        await target.run([("TIME",)])
    assert (await copy(source, target, progress=ONE)).deleted == LOST_KEYS
    await source.run([("DEL", f"sess:{n}") for n in range(LOST_KEYS, 2 * LOST_KEYS)])
    with pytest.raises(SourceEmptied, match=r"^100 of the 900 keys"):
        await copy(source, target, progress=ONE)


async def test_a_source_that_loses_its_data_while_it_is_followed_empties_no_target(
    source: Store, target: Store
) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(300)])
    before = await contents(source)
    lost: list[asyncio.Task[Any]] = []

    def loses(passed: Passed, took_s: float) -> None:
        lost.append(asyncio.ensure_future(source.run([("DEL", *(f"sess:{n}" for n in range(1, 300)))])))

    with pytest.raises(SourceEmptied, match=r"^299 of the 300 keys"):
        await asyncio.wait_for(follow(source, target, asyncio.Event(), progress=ONE, on_pass=loses), 20)
    await asyncio.gather(*lost)
    assert await own(target) == before


async def test_an_emptied_target_is_not_treated_as_deleted(source: Store, target: Store) -> None:
    await source.run([("SET", "sess:1", "1")])
    assert (await copy(source, target, progress=ONE)).is_whole
    async with connect("memory://") as emptied:
        with pytest.raises(CopyLost, match="add --start-over to start over"):
            await copy(source, emptied, progress=ONE)
        assert (await copy(source, emptied, progress=ONE, start_over=True)).written == 1


async def test_a_target_that_lost_a_part_is_not_treated_as_deleted(source: Store, target: Store) -> None:
    await source.run([("SET", f"sess:{n}", n) for n in range(1_000)])
    await copy(source, target, progress=ONE)
    await target.run([("DEL", f"sess:{n}") for n in range(101)])
    for _ in range(2):
        with pytest.raises(CopyLost, match=r"more than a tenth of the 1,000 keys .* --start-over .* --allow-empty"):
            await copy(source, target, progress=ONE)
    copied = await copy(source, target, progress=ONE, start_over=True)
    assert (copied.written, copied.is_whole) == (101, True)

    await source.run([("SET", f"more:{n}", n) for n in range(1_000)])
    await copy(source, target, progress=ONE)
    await target.run([("DEL", f"more:{n}") for n in range(101, 301)])
    copied = await copy(source, target, progress=ONE, allow_empty=True)
    assert (copied.written, copied.deleted_there, copied.is_whole) == (0, 200, True)
    await target.run([("DEL", f"sess:{n}") for n in range(300, 400)])  # no more than a tenth, which were there before
    copied = await copy(source, target, progress=ONE, overwrite=True)
    assert (copied.written, copied.deleted_there, copied.is_whole) == (0, 300, True)


async def test_an_uncertain_key_is_settled_after_its_check(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logout at the target is final, also for a key that was being written when the first run was killed."""
    await source.run([("SET", "sess:1", "1"), ("SET", "sess:2", "1")])

    def killed(self: Journal, *_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "end", killed)
        with pytest.raises(RuntimeError, match="killed"):
            await copy(source, target, progress=ONE)
    assert (await copy(source, target, progress=ONE)).is_whole
    await target.run([("DEL", "sess:1")])
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.deleted_there, copied.is_whole) == (0, 1, True)


@pytest.mark.parametrize("nth", [0, 1], ids=["new", "replaced"])
@pytest.mark.parametrize("moment", ["begin", "end"])
async def test_a_kill_makes_no_key_a_copys_own_that_was_there_before(
    moment: str, nth: int, source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after an intent is recorded, or right before its end: for new keys, and keys to be replaced."""
    await source.run([("SET", "same", "1"), ("SET", "differs", "1"), ("SET", "stays", "1")])
    await target.run([("SET", "same", "1"), ("SET", "differs", "theirs"), ("SET", "stays", "theirs")])
    theirs = await own(target)
    noted, left = getattr(Journal, moment), nth

    def killed(self: Journal, *args: Any) -> Any:
        nonlocal left
        done = noted(self, *args) if left or moment == "begin" else None
        if not left:
            raise RuntimeError("killed")
        left -= 1
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Journal, moment, killed)
        patch.setattr(Copier, "_replace", replaces_nothing)
        with pytest.raises(RuntimeError, match="killed"):
            await copy(source, target, progress=ONE, overwrite=True)
    assert await own(target) == theirs
    await source.run([("DEL", "same"), ("DEL", "differs")])
    assert (await survey(source, target, progress=ONE)).gone == 0
    copied = await copy(source, target, progress=ONE)
    assert (copied.written, copied.deleted, copied.in_the_way) == (0, 0, 1)
    assert await own(target) == theirs


async def replaces_nothing(*_: object) -> bool:
    return True  # as if the step was on its way when the process was killed


async def test_a_resumed_follow_propagates_deletions(source: Store, target: Store) -> None:
    await source.run([("SET", "sess:1", "1"), ("SET", "sess:2", "1")])
    stop = asyncio.Event()
    stop.set()
    assert (await follow(source, target, stop, progress=ONE)).is_whole
    await source.run([("DEL", "sess:1")])
    copied = await follow(source, target, stop, progress=ONE, overwrite=True)
    assert (copied.deleted, copied.is_whole) == (1, True)
    assert await own(target) == await contents(source)


async def test_the_doctor_knows_the_key_that_a_copy_leaves(source: Store, target: Store) -> None:
    class Others(Keyspace):
        """Any other store."""

        other = Value("other:{id}", str, lifetime=never("it is only a test"), doc="another key")

    await source.run([("SET", "sess:1", "1")])
    await copy(source, target, progress=ONE)
    await target.run([("DEL", "sess:1")])
    report = await examine([Others(target)])
    assert report.findings == 0
