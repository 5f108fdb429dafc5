"""Relations: consistent indexes, cascading deletes, and delete plans."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import (
    Counter,
    Hash,
    KeyRing,
    Keyspace,
    List,
    Sealed,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    connect,
    end_of_day,
    link,
    never,
    sliding,
)
from keystead.errors import BadArgument, BadDeclaration, BadValue, DoesNotFit
from keystead.schema import VALUE, OmittedIfNone, listing
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

FOREVER = never("a test")


class Session(BaseModel):
    uid: str
    created_at: int = 0


class Site(BaseModel):
    id: str
    url: str
    backup: OmittedIfNone[str] = None


class Keys(Keyspace):
    """Sessions by user, and sites with all that belongs to them."""

    sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1h"))
    session = Value("sess:{sid}", Session, lifetime=after("30d"), listed_in=sessions, owns=link("lock"))
    lock = Value("lock:{sid}", str, lifetime=after("5s"))
    by_age = SortedSet("user:{uid}:devices", str, lifetime=FOREVER)
    device = Hash("device:{uid}:{did}", Session, lifetime=FOREVER, listed_in=by_age.by(score="created_at"))

    index = SortedSet("sites:index", str, lifetime=FOREVER)
    address = Value("url:{url:uri}", str, lifetime=FOREVER, leads_to=link("site", id=VALUE))
    backup = Value("backup:{name}", str, lifetime=FOREVER)
    total = Counter("site:{id}:total", lifetime=FOREVER)
    daily = Counter("site:{id}:daily:{date:date}", lifetime=FOREVER)
    messages = List("site:{id}:messages", str, lifetime=FOREVER)
    visit = Value("site:{id}:visit:{who}", str, lifetime=end_of_day("UTC"))
    site = Value(
        "site:{id}",
        Site,
        lifetime=FOREVER,
        listed_in=index,
        owns=[address, total, daily, messages, visit, backup.by(name="backup")],
        member_of="owner:{id}",
    )


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store)


async def everything(store: Store) -> set[str]:
    return {key.decode() async for page in store.scan() for key in page}


@everywhere
async def test_a_record_and_its_index_entry_are_written_together(keys: Keys, store: Store) -> None:
    await keys.session("s1").set(Session(uid="ann"))
    assert await keys.session("s2").add(Session(uid="ann")) is True
    assert await keys.session("s2").add(Session(uid="bob")) is False
    assert await keys.session("s3").replace(Session(uid="ann")) is False
    assert await keys.sessions("ann").members() >= {"s1", "s2"}
    assert await keys.sessions("ann").live() == {"s1", "s2"}
    assert await keys.sessions("bob").live() == set()


@everywhere
async def test_a_hash_is_listed_by_the_score_it_names(keys: Keys) -> None:
    await keys.device(uid="ann", did="d1").set(Session(uid="ann", created_at=20))
    await keys.device(uid="ann", did="d2").add(Session(uid="ann", created_at=10))
    assert await keys.by_age("ann").lowest(5) == [("d2", 10), ("d1", 20)]
    assert await keys.by_age("ann").live() == ["d2", "d1"]


@everywhere
async def test_a_listing_hides_and_prunes_dead_entries(keys: Keys, store: Store) -> None:
    for n in range(5):
        await keys.session(f"s{n}").set(Session(uid="ann"))
    await store.run([("DEL", "sess:s1", "sess:s3")])  # as if they had expired
    assert await keys.sessions("ann").live() == {"s0", "s2", "s4"}
    assert await keys.sessions("ann").members() == {"s0", "s2", "s4"}


@everywhere
async def test_an_index_that_is_never_read_does_not_grow(keys: Keys, store: Store) -> None:
    for n in range(200):
        await keys.session(f"s{n}").set(Session(uid="ann"))
        await store.run([("DEL", f"sess:s{n}")])
    assert await keys.sessions("ann").count() <= listing.PRUNE_FROM


@everywhere
async def test_an_index_of_living_records_loses_none_of_them(keys: Keys) -> None:
    await asyncio.gather(*(keys.session(f"s{n}").set(Session(uid="ann")) for n in range(100)))
    assert await keys.sessions("ann").count() == 100
    assert len(await keys.sessions("ann").live()) == 100


async def test_a_record_made_while_the_index_is_pruned_keeps_its_entry(memory: Store) -> None:
    keys = Keys(memory)
    for n in range(40):
        await keys.session(f"s{n}").set(Session(uid="ann"))
        await memory.run([("DEL", f"sess:s{n}")])
        again, _ = await asyncio.gather(keys.session(f"s{n}").add(Session(uid="ann")), keys.sessions("ann").live())
        assert again
        assert f"s{n}" in await keys.sessions("ann").members()


@everywhere
async def test_deleting_a_record_deletes_its_entry_and_owned_keys(keys: Keys, store: Store) -> None:
    await keys.session("s1").set(Session(uid="ann"))
    await keys.session("s2").set(Session(uid="ann"))
    await keys.lock("s1").set("1")
    assert await keys.session("s1").delete() is True
    assert await everything(store) == {"sess:s2", "user:ann:sessions"}
    assert await keys.sessions("ann").members() == {"s2"}
    assert await keys.session("s1").delete() is False


async def fill_site(keys: Keys, site: str, url: str, backup: str | None = None) -> None:
    from datetime import date

    await keys.site(site).set(Site(id=site, url=url, backup=backup))
    await keys.address(url).set(site)
    await keys.total(site).increment()
    for day in (1, 2, 3):
        await keys.daily(id=site, date=date(2026, 2, day)).increment()
    await keys.messages(site).append("hi")
    await keys.visit(id=site, who="ann").set("1")
    if backup:
        await keys.backup(backup).set("1")


@everywhere
async def test_deleting_a_site_deletes_its_keys_and_no_others(keys: Keys, store: Store) -> None:
    await fill_site(keys, "a", "https://a.example", backup="b-a")
    before = await everything(store)
    await fill_site(keys, "a*", "https://b.example", backup="b-b")
    await fill_site(keys, "[a]", "https://c.example")
    others = await everything(store) - before
    plan = await keys.site("a").plan_delete()
    assert await everything(store) == before | others, "a plan changes nothing"
    assert set(plan.keys) == before - {"sites:index"}
    assert "take out a of sites:index" in str(plan)
    assert await keys.site("a").delete() is True
    assert await everything(store) == others | {"sites:index"}
    assert await keys.index().lowest(9) == [
        (name, score) for name, score in await keys.index().lowest(9) if name != "a"
    ]


@everywhere
async def test_deleting_an_unreadable_record_cascades_as_far_as_its_key_determines(keys: Keys, store: Store) -> None:
    await fill_site(keys, "a", "https://a.example")
    await store.run([("SET", "site:a", "{")])
    plan = await keys.site("a").plan_delete()
    assert any("not deleted with it" in note for note in plan.notes)
    assert await keys.site("a").delete() is True
    assert await everything(store) == {"url:https%3A%2F%2Fa.example"}


async def test_a_delete_detects_a_change_between_its_read_and_its_step(memory: Store) -> None:
    keys = Keys(memory)
    await fill_site(keys, "a", "https://a.example")
    seen = 0
    whole = memory.atomically

    async def moved_meanwhile(steps: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 1:
            await memory.run(
                [("SET", "site:a", Site(id="a", url="https://new.example").model_dump_json(exclude_none=True))]
            )
            await memory.run([("SET", "url:https%3A%2F%2Fnew.example", "a"), ("DEL", "url:https%3A%2F%2Fa.example")])
        return await whole(steps)

    memory.atomically = moved_meanwhile  # type: ignore[method-assign]
    assert await keys.site("a").delete() is True
    assert await everything(memory) == set()
    assert seen >= 2


class Grouped(Keyspace):
    """Deletes that the key determines can be part of one atomic step."""

    index = Set("all:{id}", str, lifetime=FOREVER, tag="id")
    part = Counter("thing:{id}:{n}:parts", lifetime=FOREVER, tag="id")
    thing = Value("thing:{id}:{n}", str, lifetime=FOREVER, tag="id", listed_in=index, owns=part)
    log = Counter("log:{id}", lifetime=FOREVER, tag="id")


@everywhere
async def test_a_delete_determined_by_the_key_can_be_part_of_an_atomic_step(store: Store) -> None:
    keys = Grouped(store)
    await keys.thing(id="a", n="1").set("x")
    await keys.part(id="a", n="1").increment()
    done = await keys.atomically(keys.thing(id="a", n="1").delete(), keys.log("a").increment())
    assert done
    assert done.values == (True, 1)
    assert len(await everything(store)) == 1


async def test_a_delete_of_several_steps_cannot_join_a_batch(memory: Store) -> None:
    keys = Keys(memory)
    with pytest.raises(BadArgument, match="await the delete alone"):
        await keys.atomically(keys.site("a").delete(), keys.total("b").increment())
    assert await keys.run(keys.site("a").delete(), keys.total("b").increment()) == (False, 1)


async def test_a_record_that_does_not_say_where_it_is_listed_is_refused(memory: Store) -> None:
    class Odd(Keyspace):
        index = Set("by:{owner}", str, lifetime=FOREVER)
        thing = Value("thing:{id}", Site, lifetime=FOREVER, listed_in=index.by(owner="backup"))

    with pytest.raises(BadValue, match="backup"):
        await Odd(memory).thing("1").set(Site(id="1", url="u"))
    assert await everything(memory) == set()


def declare(**families: Any) -> type[Keyspace]:
    return type("Odd", (Keyspace,), families)


INDEX: Any = {"lifetime": FOREVER}


@pytest.mark.parametrize(
    ("make", "finding", "words"),
    [
        (lambda: Value("a:{x}", str), "no-lifetime", "lifetime is not stated"),  # type: ignore[call-overload]
        (lambda: Value("a:{x}", str, lifetime="30d"), "no-lifetime", "'30d' is not a lifetime"),  # type: ignore[call-overload]
        (lambda: Value("a:{x}", str, lifetime=FOREVER, role="not a name"), "bad-role", "role"),
        (lambda: Counter("a:{x}", lifetime=FOREVER, listed_in="x"), "dangling-relation", "only a Value or a Hash"),
        (lambda: List("a:{x}", str, keep=0, lifetime=FOREVER), "bad-declaration", "keep"),
        (lambda: Hash("a:{x}", str, lifetime=FOREVER), "bad-value-type", "model or a dict"),  # type: ignore[type-var]
        (lambda: declare(a=Value("a:{x}", str, lifetime=FOREVER, owns="b")), "dangling-relation", "'b'"),
        (
            lambda: declare(
                a=Value("a:{x}", str, lifetime=FOREVER, owns=link("b", y="z")), b=Counter("b:{y}", **INDEX)
            ),
            "dangling-relation",
            "'z'",
        ),
        (
            lambda: declare(
                a=Value("a:{x}", str, lifetime=FOREVER, owns=link("b", z="x")), b=Counter("b:{y}", **INDEX)
            ),
            "dangling-relation",
            "not a placeholder of b:{y}",
        ),
        (
            lambda: declare(
                a=Value("a:{x}", str, lifetime=FOREVER, owns="b"), b=Value("b:{x}", str, lifetime=FOREVER, owns="a")
            ),
            "circular-relation",
            "a owns b owns a",
        ),
        (
            lambda: declare(a=Value("a:{x}", str, lifetime=FOREVER, owns="b"), b=Counter("b:{y}:{z}", **INDEX)),
            "dangling-relation",
            "every key of b",
        ),
        (
            lambda: declare(a=Value("a:{x}", str, lifetime=FOREVER, listed_in="b"), b=Counter("b", **INDEX)),
            "dangling-relation",
            "Set or a SortedSet",
        ),
        (
            lambda: declare(a=Value("a:{x}:{y}", str, lifetime=FOREVER, listed_in="b"), b=Set("b", str, **INDEX)),
            "dangling-relation",
            "member=",
        ),
        (
            lambda: declare(
                a=Value("a:{x}:{y}", str, lifetime=FOREVER, listed_in=link("b", member="x")), b=Set("b", str, **INDEX)
            ),
            "dangling-relation",
            "does not determine its record",
        ),
        (
            lambda: declare(a=Value("a:{x}", Site, lifetime=FOREVER, listed_in="b"), b=Set("b:{who}", str, **INDEX)),
            "dangling-relation",
            "by(who=",
        ),
        (
            lambda: declare(a=Value("a:{x}", str, lifetime=FOREVER, member_of="user:{uid}")),
            "dangling-relation",
            "member_of",
        ),
        (lambda: declare(a=Value("a:{x}", str, lifetime=FOREVER, member_of="user")), "dangling-relation", "user:{uid}"),
        (lambda: declare(run=Value("a:{x}", str, lifetime=FOREVER)), "bad-declaration", "choose another"),
    ],
)
def test_an_invalid_declaration_names_its_location(make: Any, finding: str, words: str) -> None:
    with pytest.raises(BadDeclaration) as raised:
        make()
    assert raised.value.finding == finding
    assert words in str(raised.value)


async def test_a_role_that_is_not_given_falls_back_to_the_default(memory: Store) -> None:
    class Roles(Keyspace):
        a = Counter("a", lifetime=FOREVER)
        b = Counter("b", lifetime=FOREVER, role="durable")
        c = Counter("c", lifetime=FOREVER, role="own")

    async with connect("memory://") as other:
        keys = Roles(memory, own=other)
        assert (keys.a.store, keys.b.store, keys.c.store) == (memory, memory, other)
        assert keys.stores == [memory, other]
        with pytest.raises(DoesNotFit, match="role 'default' has no store"):
            Roles(own=other)


async def test_a_record_and_its_index_in_two_stores_are_refused_at_the_start(memory: Store) -> None:
    class Split(Keyspace):
        index = Set("index", str, lifetime=FOREVER, role="durable")
        thing = Value("thing:{id}", str, lifetime=FOREVER, listed_in=index)

    async with connect("memory://") as other:
        Split(memory)
        with pytest.raises(DoesNotFit, match="the same role"):
            Split(memory, durable=other)


class Living(Keyspace):
    """Records that live on by use, and the indexes that must live as long."""

    by_user = Set("of:{uid}", str, lifetime=sliding("1h", touch_every="1m"))
    by_team = SortedSet("team:{team}", str, lifetime=sliding("1h", touch_every="1m"))
    record = Value("rec:{sid}", Session, lifetime=sliding("1h", touch_every="1m"), listed_in=by_user)
    member = Hash("mem:{team}:{sid}", Session, lifetime=sliding("1h", touch_every="1m"), listed_in=by_team)


@everywhere
async def test_an_index_lives_as_long_as_the_records_that_are_used(store: Store) -> None:
    keys = Living(store)
    await keys.record("s1").set(Session(uid="ann"))
    await keys.member(team="red", sid="s1").set(Session(uid="ann"))
    for key in ("rec:s1", "of:ann", "mem:red:s1", "team:red"):
        await store.run([("PEXPIRE", key, 60_000)])
    assert await keys.record("s1").use() == Session(uid="ann")
    assert await keys.member(team="red", sid="s1").touch() is True
    left = await store.run([("PTTL", key) for key in ("rec:s1", "of:ann", "mem:red:s1", "team:red")])
    assert all(ms > 3_000_000 for ms in left)
    assert await keys.record("gone").touch() is False
    assert await keys.by_user("ann").members() == {"s1"}


@everywhere
async def test_writing_a_listed_record_again_does_not_prune_each_time(store: Store) -> None:
    keys = Living(store)
    for n in range(listing.PRUNE_FROM):
        await keys.record(f"s{n}").set(Session(uid="ann"))
    await store.run([("SADD", "of:ann", "dead")])
    await store.run([("SREM", "of:ann", "s0")])  # the size is the one at which a growing index is pruned
    await keys.record("s1").replace(Session(uid="ann"))
    assert "dead" in await keys.by_user("ann").members()


@everywhere
async def test_consuming_a_record_cascades(keys: Keys, store: Store) -> None:
    await fill_site(keys, "a", "https://a.example", backup="b-a")
    got = await asyncio.gather(*(keys.site("a").consume() for _ in range(5)))
    assert sum(one is not None for one in got) == 1
    assert await everything(store) == set()


@everywhere
async def test_a_record_that_moves_to_another_user_leaves_the_first_index(keys: Keys, store: Store) -> None:
    await keys.session("s1").set(Session(uid="ann"))
    await keys.session("s1").set(Session(uid="bob"))
    assert await keys.sessions("ann").live() == set()
    assert await keys.sessions("bob").live() == {"s1"}
    assert await store.run([("EXISTS", "user:ann:sessions")]) == [0]


class Nested(Keyspace):
    """Owned keys that must be found, and that own others in turn."""

    leaf = Counter("leaf:{id}:{branch}:{page}", lifetime=FOREVER)
    branch = Value("branch:{id}:{branch}", str, lifetime=FOREVER, owns=leaf)
    tree = Value("tree:{id}", str, lifetime=FOREVER, owns=branch)


@everywhere
async def test_a_delete_follows_owned_keys_that_own_others_in_turn(store: Store) -> None:
    keys = Nested(store)
    for tree in ("a", "b"):
        await keys.tree(tree).set("x")
        for branch in ("1", "2"):
            await keys.branch(id=tree, branch=branch).set("x")
            for page in ("p", "q"):
                await keys.leaf(id=tree, branch=branch, page=page).increment()
    plan = await keys.tree("a").plan_delete()
    assert len(plan.keys) == 7
    assert await keys.tree("a").delete() is True
    assert {key.split(":")[1] for key in await everything(store)} == {"b"}


class TwoIndexes(Keyspace):
    """Listed by its key and by a field."""

    all_of = Set("all", str, lifetime=FOREVER)
    by_owner = Set("by:{backup}", str, lifetime=FOREVER)
    thing = Value("thing:{id}", Site, lifetime=FOREVER, listed_in=[all_of, by_owner])


@everywhere
async def test_an_undeterminable_index_does_not_block_a_delete(store: Store) -> None:
    keys = TwoIndexes(store)
    await keys.thing("1").set(Site(id="1", url="u", backup="b"))
    await store.run([("SET", "thing:1", "{")])
    assert any("by_owner" in note for note in (await keys.thing("1").plan_delete()).notes)
    assert await keys.thing("1").delete() is True
    assert await everything(store) == {"by:b"}
    assert await keys.by_owner("b").live() == set()
    assert await everything(store) == set()


@everywhere
async def test_a_listed_hash_is_changed_without_losing_its_entry(store: Store) -> None:
    keys = Living(store)
    key = keys.member(team="red", sid="s1")
    await key.set(Session(uid="ann"))
    await store.run([("PEXPIRE", "team:red", 60_000)])
    assert await key.update({"created_at": 5}) is True
    assert (await store.run([("PTTL", "team:red")]))[0] > 3_000_000
    with pytest.raises(BadValue, match="no index lists"):
        keys.member(team="red", sid="s2").put({"uid": "bob"})


async def test_upkeep_that_fails_does_not_hide_that_the_operation_took_effect(
    memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Living(memory)
    await memory.run([("SET", "rec:s1", "{", "PX", 60_000)])
    assert await keys.record("s1").touch() is True
    assert "unreadable" in caplog.text


async def test_an_argument_that_is_not_an_operation_is_refused(memory: Store) -> None:
    keys = Keys(memory)
    operation = keys.lock("a").get()
    for wrong in ([operation], keys.sessions("ann").live(), None):
        with pytest.raises(BadArgument, match="verbs return"):
            await keys.run(wrong)  # type: ignore[call-overload]
    assert await operation is None


async def test_a_touch_beside_a_delete_leaves_no_entry_behind(memory: Store) -> None:
    keys = Living(memory)
    for n in range(30):
        await keys.record(f"s{n}").set(Session(uid="ann"))
        await asyncio.gather(keys.record(f"s{n}").touch(), keys.record(f"s{n}").delete())
    assert await keys.by_user("ann").members() == set()


class Hooked(BaseModel):
    url: str
    hook: Sealed[str]
    other: OmittedIfNone[Sealed[str]] = None


class HookedKeys(Keyspace):
    """Records that name what belongs to them in the clear, beside what is sealed."""

    address = Value("url:{url:uri}", str, lifetime=FOREVER)
    site = Value("site:{id}", Hooked, lifetime=FOREVER, owns=address)


@pytest.mark.parametrize("is_sealed_well", [True, False])
async def test_without_a_key_ring_a_delete_follows_the_unsealed_fields_of_a_record(
    memory: Store, is_sealed_well: bool
) -> None:
    keys = HookedKeys(memory, seal=KeyRing({"2026": b"k" * 32}))
    await keys.run(keys.site("1").set(Hooked(url="https://a", hook="secret")), keys.address("https://a").set("1"))
    if not is_sealed_well:
        await memory.run([("SET", "site:1", "{")])
    others = HookedKeys(memory, needs_seal=False)
    plan = await others.site("1").plan_delete()
    assert await others.site("1").delete() is True
    assert await keys.address("https://a").exists() is not is_sealed_well
    assert bool(plan.notes) is not is_sealed_well
