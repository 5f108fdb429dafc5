"""The key document of the widgets kit: counter, like, ranking and BBS. What the service does with it is in widgets/."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from keystead import KeyRing, Store
from keystead.errors import BadKey, BadValue
from keystead.kits.widgets import (
    BbsMessage,
    BbsRecord,
    BbsSettings,
    CounterRecord,
    LikeRecord,
    RankingEntry,
    RankingMeta,
    RankingRecord,
    WelcomeRecord,
    WidgetKeys,
)
from keystead.kits.widgets.models import BbsSelect, Hook, RankingDetail
from tests.kits.conftest import SLACK_MS, Raw, lifetimes, rows, rows_of, without_seals
from tests.kits.writes import each_write

DOCUMENT = {
    "url:counter:{encoded_url}": "Value",
    "counters:index": "SortedSet",
    "counter:{id}": "Value",
    "counter:{id}:total": "Counter",
    "counter:{id}:daily:{YYYY-MM-DD}": "Counter",
    "counter:{id}:owner": "Value",
    "counter:{id}:visit:{user_hash}": "Value",
    "url:like:{encoded_url}": "Value",
    "likes:index": "SortedSet",
    "like:{id}": "Value",
    "like:{id}:total": "Counter",
    "like:{id}:users:{user_hash}": "Value",
    "like:{id}:owner": "Value",
    "url:ranking:{encoded_url}": "Value",
    "rankings:index": "SortedSet",
    "ranking:{id}": "Value",
    "ranking:{id}:scores": "SortedSet",
    "ranking:{id}:owner": "Value",
    "ranking:{id}:meta": "Value",
    "ranking:{id}:submit:{user_hash}": "Value",
    "url:bbs:{encoded_url}": "Value",
    "bbss:index": "SortedSet",
    "bbs:{id}": "Value",
    "bbs:{id}:messages": "List",
    "bbs:{id}:owner": "Value",
    "bbs:{id}:post:{user_hash}": "Value",
}
# What the document has no rows for: what it repeats in its records, who has marks, and what the service itself needs.
ADDED = {
    "counter:{id}:last": "Value",
    "counter:{id}:visitors": "Set",
    "like:{id}:last": "Value",
    "like:{id}:users": "Set",
    "ranking:{id}:turns": "SortedSet",
    "ranking:{id}:details": "Hash",
    "ranking:{id}:sequence": "Counter",
    "ranking:{id}:last": "Value",
    "ranking:{id}:submitters": "SortedSet",
    "bbs:{id}:version": "Counter",
    "bbs:{id}:posters": "SortedSet",
    "url:yokoso:{encoded_url}": "Value",
    "yokosos:index": "SortedSet",
    "yokoso:{id}": "Value",
    "yokoso:{id}:owner": "Value",
    "widgets:ending": "Set",
    "widgets:requests:{name}:{window}:{client}": "Counter",
}
ID, URL = "example-a1b2c3d4", "https://example.com"
CREATED = datetime(2025, 8, 1, 12, 30, 15, 250_000, tzinfo=UTC)
CREATED_MS = 1754051415250
SEEN = datetime(2025, 8, 2, 8, tzinfo=UTC)
USER = "9f86d081884c7d65"
OWNER = "scrypt.00112233445566778899aabbccddeeff.2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
TODAY = {"counter_visit", "counter_visitors", "like_user", "like_users"}  # what lives until the day ends
MESSAGE = BbsMessage(id="m1", timestamp=SEEN, author="Ann", message="Hello", user_hash=USER)


class Service(NamedTuple):
    """One of the services, and what it keeps for one address."""

    name: str
    record: Any
    others: dict[str, tuple[tuple[Any, ...], Any]]  # families by name: the values behind the id, and a value


SERVICES = [
    Service(
        "counter",
        CounterRecord(id=ID, url=URL, created=CREATED),
        {
            "counter_total": ((), 7),
            "counter_last": ((), SEEN),
            "counter_daily": ((date(2025, 8, 2),), 3),
            "counter_owner": ((), OWNER),
            "counter_visit": ((USER,), SEEN),
            "counter_visitors": ((), USER),
        },
    ),
    Service(
        "like",
        LikeRecord(id=ID, url=URL, created=CREATED),
        {
            "like_total": ((), 7),
            "like_last": ((), SEEN),
            "like_user": ((USER,), True),
            "like_users": ((), USER),
            "like_owner": ((), OWNER),
        },
    ),
    Service(
        "ranking",
        RankingRecord(id=ID, url=URL, created=CREATED, max_entries=10),
        {
            "ranking_scores": ((), RankingEntry("Ann", "u1")),
            "ranking_turns": ((), RankingEntry("Ann", "u1")),
            "ranking_details": ((), {"u1": RankingDetail(display_score="1:02", at=SEEN)}),
            "ranking_sequence": ((), 1),
            "ranking_last": ((), SEEN),
            "ranking_owner": ((), OWNER),
            "ranking_meta": ((), RankingMeta(title="Best")),
            "ranking_submit": ((USER,), SEEN),
            "ranking_submitters": ((), USER),
        },
    ),
    Service(
        "bbs",
        BbsRecord(id=ID, url=URL, created=CREATED),
        {
            "bbs_messages": ((), MESSAGE),
            "bbs_version": ((), 1),
            "bbs_owner": ((), OWNER),
            "bbs_post": ((USER,), SEEN),
            "bbs_posters": ((), USER),
        },
    ),
]
SERVICES.append(
    Service(
        "yokoso",
        WelcomeRecord(id=ID, url=URL, created=CREATED, message="Hello", updated=SEEN),
        {"yokoso_owner": ((), OWNER)},
    )
)
each_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)


@pytest.fixture
def keys(store: Store, ring: KeyRing) -> WidgetKeys:
    return WidgetKeys(store, seal=ring)


def until(name: str) -> dict[str, datetime]:
    """What a write of this family must be told: when the day ends, where it lives so long."""
    return {"end_of_day": datetime.now(UTC) + timedelta(hours=6)} if name in TODAY else {}


async def make(keys: WidgetKeys, service: Service, id_: str = ID, url: str = URL) -> None:
    """Everything that a service keeps for one address."""
    await getattr(keys, service.name)(id_).add(service.record.model_copy(update={"id": id_, "url": url}))
    await getattr(keys, f"{service.name}_url")(url).add(id_)
    for name, (values, value) in service.others.items():
        key = getattr(keys, name)(id_, *values)
        match key.bound.family.kind_name:
            case "Counter":
                await key.increment(value)
            case "SortedSet":
                await key.put({value: 100})
            case "List":
                await key.prepend(value)
            case "Set":
                await key.add(value, **until(name))
            case _:
                await key.set(value, **until(name))


def test_every_row_of_the_document_is_a_family() -> None:
    assert rows_of(WidgetKeys) == rows(DOCUMENT | ADDED)


def test_the_lifetimes_are_those_of_the_document() -> None:
    ending = {name: said for name, said in lifetimes(WidgetKeys).items() if not said.startswith("never expires: ")}
    of_the_day = "until `end_of_day`, at most 1 day 2 hours"  # the day on which clocks go back has 25 hours
    assert ending == {
        "counter_visit": of_the_day,
        "counter_visitors": of_the_day,
        "like_user": of_the_day,
        "like_users": of_the_day,
        "ranking_submit": "1 minute",
        "ranking_submitters": "1 minute after the last use; touched at most once in 1 second",
        "bbs_post": "10 seconds",
        "bbs_posters": "10 seconds after the last use; touched at most once in 1 second",
        "requests": "2 minutes",
    }


async def test_an_address_is_escaped_as_in_the_document(keys: WidgetKeys, raw: Raw) -> None:
    await keys.counter_url(url="https://example.com").set("example-a1b2c3d4")
    assert await raw.ask("GET", "url:counter:https%3A%2F%2Fexample.com") == b"example-a1b2c3d4"
    parsed = keys.counter_url.parse("url:counter:https%3A%2F%2Fexample.com")
    assert parsed == {"url": "https://example.com"}


async def test_an_address_of_any_length_fits_every_store(keys: WidgetKeys) -> None:
    for name in ("counter", "like", "ranking", "bbs"):
        longest = WidgetKeys.families[f"{name}_url"].pattern.max_bytes
        assert longest is not None
        assert longest <= 512
    first, second = (keys.counter_url(url=f"https://example.com/{'x' * 2000}{end}").key for end in "ab")
    assert first != second


@pytest.mark.parametrize(
    ("service", "values", "key"),
    [
        ("counter_total", (ID,), "counter:example-a1b2c3d4:total"),
        ("counter_daily", (ID, date(2025, 8, 2)), "counter:example-a1b2c3d4:daily:2025-08-02"),
        ("counter_owner", (ID,), "counter:example-a1b2c3d4:owner"),
        ("counter_visit", (ID, USER), "counter:example-a1b2c3d4:visit:9f86d081884c7d65"),
        ("like_total", (ID,), "like:example-a1b2c3d4:total"),
        ("like_user", (ID, USER), "like:example-a1b2c3d4:users:9f86d081884c7d65"),
        ("like_owner", (ID,), "like:example-a1b2c3d4:owner"),
        ("ranking_scores", (ID,), "ranking:example-a1b2c3d4:scores"),
        ("ranking_owner", (ID,), "ranking:example-a1b2c3d4:owner"),
        ("ranking_meta", (ID,), "ranking:example-a1b2c3d4:meta"),
        ("ranking_submit", (ID, USER), "ranking:example-a1b2c3d4:submit:9f86d081884c7d65"),
        ("bbs_messages", (ID,), "bbs:example-a1b2c3d4:messages"),
        ("bbs_owner", (ID,), "bbs:example-a1b2c3d4:owner"),
        ("bbs_post", (ID, USER), "bbs:example-a1b2c3d4:post:9f86d081884c7d65"),
    ],
)
async def test_keys_are_written_as_in_the_document(
    keys: WidgetKeys, service: str, values: tuple[Any, ...], key: str
) -> None:
    assert getattr(keys, service)(*values).key == key


@pytest.mark.parametrize("id_", ["a:b", "a b", "", "ä", "a/b"])
async def test_an_id_is_a_token_so_that_no_two_keys_can_be_the_same(keys: WidgetKeys, id_: str) -> None:
    with pytest.raises(BadKey):
        keys.counter(id_)


COMMON = '"id":"example-a1b2c3d4","url":"https://example.com","created":"2025-08-01T12:30:15.250Z","layout":1'


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        pytest.param(CounterRecord(id=ID, url=URL, created=CREATED), f'{{"service":"counter",{COMMON}}}'),
        pytest.param(LikeRecord(id=ID, url=URL, created=CREATED), f'{{"service":"like",{COMMON}}}'),
        pytest.param(
            LikeRecord(id=ID, url=URL, created=CREATED, icon="star"), f'{{"service":"like",{COMMON},"icon":"star"}}'
        ),
        pytest.param(
            RankingRecord(id=ID, url=URL, created=CREATED, max_entries=10, sort_order="asc"),
            f'{{"service":"ranking",{COMMON},"maxEntries":10,"sortOrder":"asc"}}',
        ),
        pytest.param(
            BbsRecord(
                id=ID,
                url=URL,
                created=CREATED,
                settings=BbsSettings(
                    title="BBS",
                    max_messages=100,
                    messages_per_page=10,
                    icons=["😀"],
                    selects=[BbsSelect(label="mood", options=["good", "bad"])],
                ),
            ),
            f'{{"service":"bbs",{COMMON},"settings":{{"title":"BBS","maxMessages":100,"messagesPerPage":10,'
            '"icons":["😀"],"selects":[{"label":"mood","options":["good","bad"]}]}}',
        ),
        pytest.param(BbsRecord(id=ID, url=URL, created=CREATED), f'{{"service":"bbs",{COMMON},"settings":{{}}}}'),
        pytest.param(
            WelcomeRecord(id=ID, url=URL, created=CREATED, message="Hello", mode="card", name="Cat", updated=SEEN),
            f'{{"service":"yokoso",{COMMON},"message":"Hello","mode":"card","name":"Cat",'
            '"updated":"2025-08-02T08:00:00.000Z"}',
        ),
        pytest.param(
            CounterRecord(id=ID, url=URL, created=CREATED, webhook=Hook(url="https://a.example", secret="whsec_x")),
            f'{{"service":"counter",{COMMON},"webhook":{{"url":"*","secret":"*"}}}}',
        ),
        pytest.param(
            CounterRecord(id=ID, url=URL, created=CREATED, ending="x"), f'{{"service":"counter",{COMMON},"ending":"x"}}'
        ),
    ],
    ids=lambda given: getattr(given, "service", None),
)
async def test_records_are_stored_as_in_the_document(keys: WidgetKeys, raw: Raw, record: Any, stored: str) -> None:
    """But for what stands under keys of its own: totals, the last use, and the owner."""
    key = getattr(keys, record.service)(ID)
    await key.set(record)
    assert json.loads(without_seals(await raw.ask("GET", f"{record.service}:{ID}"))) == json.loads(stored)
    assert await raw.ask("ZRANGE", f"{record.service}s:index", 0, -1, "WITHSCORES") == [[ID.encode(), CREATED_MS]]
    assert await key.get() == record


def test_what_stands_twice_in_the_document_is_read_and_never_written() -> None:
    """What stands once cannot disagree with itself: an upgrade moves these to keys of their own."""
    twice = {"totalCount", "totalLikes", "totalEntries", "totalMessages", "lastVisit", "lastLike", "lastSubmit"}
    for record in (CounterRecord, LikeRecord, RankingRecord, BbsRecord):
        in_document = {field.alias: name for name, field in record.model_fields.items()}
        read = {in_document[one] for one in in_document.keys() & (twice | {"lastMessage", "owner"})}
        assert set(record.old_fields) == read
        assert all(record.model_fields[name].default is None for name in read)


async def test_totals_and_marks_are_stored_as_in_the_document(keys: WidgetKeys, raw: Raw) -> None:
    await keys.counter_total(ID).increment()
    await keys.counter_daily(ID, date(2025, 8, 2)).increment(3)
    await keys.counter_owner(ID).set(OWNER)
    await keys.counter_visit(ID, USER).set(SEEN, **until("counter_visit"))
    await keys.like_user(ID, USER).set(True, **until("like_user"))
    assert await raw.ask("GET", f"counter:{ID}:total") == b"1"
    assert await raw.ask("GET", f"counter:{ID}:daily:2025-08-02") == b"3"
    assert await raw.ask("GET", f"counter:{ID}:owner") == OWNER.encode()
    assert await raw.ask("GET", f"counter:{ID}:visit:{USER}") == b"2025-08-02T08:00:00.000Z"
    assert await raw.ask("GET", f"like:{ID}:users:{USER}") == b"true"
    assert await raw.ask("SMEMBERS", f"counter:{ID}:visitors") == {USER.encode()}
    assert await raw.ask("SMEMBERS", f"like:{ID}:users") == {USER.encode()}
    await keys.like_user(ID, USER).replace(False)
    assert await raw.ask("GET", f"like:{ID}:users:{USER}") == b"false"


async def test_a_ranking_holds_names_and_scores_as_in_the_document(keys: WidgetKeys, raw: Raw) -> None:
    scores = keys.ranking_scores(ID)
    await scores.put({RankingEntry("Ann", "k3x9"): 1200, RankingEntry("a:b", "c:d"): 900})
    assert await raw.ask("ZRANGE", f"ranking:{ID}:scores", 0, -1, "REV", "WITHSCORES") == [
        [b"Ann:k3x9", 1200],
        [b"a%3Ab:c%3Ad", 900],
    ]
    assert await scores.highest(10) == [(RankingEntry("Ann", "k3x9"), 1200), (RankingEntry("a:b", "c:d"), 900)]


async def test_the_settings_of_a_ranking_have_the_fields_that_are_set(keys: WidgetKeys, raw: Raw) -> None:
    await keys.ranking_meta(ID).set(RankingMeta(title="Best", description="of all"))
    assert await raw.ask("GET", f"ranking:{ID}:meta") == b'{"title":"Best","description":"of all"}'
    await keys.ranking_meta(ID).set(RankingMeta())
    assert await raw.ask("GET", f"ranking:{ID}:meta") == b"{}"


async def test_messages_are_stored_as_in_the_document_with_the_newest_first(keys: WidgetKeys, raw: Raw) -> None:
    second = MESSAGE.model_copy(update={"id": "m2", "icon": "😀", "selects": {"mood": "good"}})
    await keys.bbs_messages(ID).prepend(MESSAGE)
    await keys.bbs_messages(ID).prepend(second)
    newest, oldest = await raw.ask("LRANGE", f"bbs:{ID}:messages", 0, -1)
    assert newest.decode() == (
        '{"id":"m2","timestamp":"2025-08-02T08:00:00.000Z","author":"Ann","message":"Hello","icon":"😀",'
        '"selects":{"mood":"good"},"userHash":"9f86d081884c7d65"}'
    )
    assert oldest.decode() == (
        '{"id":"m1","timestamp":"2025-08-02T08:00:00.000Z","author":"Ann","message":"Hello",'
        '"userHash":"9f86d081884c7d65"}'
    )
    assert await keys.bbs_messages(ID).items() == [second, MESSAGE]


@each_service
async def test_after_each_write_what_has_no_deadline_has_none_and_a_pause_has_its_seconds(
    keys: WidgetKeys, raw: Raw, service: Service
) -> None:
    pauses = {"ranking_submit": "60s", "ranking_submitters": "60s", "bbs_post": "10s", "bbs_posters": "10s"}
    written = {service.name: ((), service.record)} | service.others
    for name, (values, value) in written.items():
        key = getattr(keys, name)(ID, *values)
        if name not in TODAY:
            async for verb in each_write(key, value):
                assert await raw.lives(key.key, pauses.get(name)), (name, verb)
    async for verb in each_write(getattr(keys, f"{service.name}_url")(URL), ID):
        assert await raw.lives(f"url:{service.name}:https%3A%2F%2Fexample.com", None), verb
    assert await raw.lives(f"{service.name}s:index", None)


@pytest.mark.parametrize(("name", "value"), [("counter_visit", SEEN), ("like_user", True)])
@pytest.mark.parametrize("left_ms", [25 * 3_600_000, 1_000, 1])
async def test_a_mark_of_the_day_and_the_set_that_names_it_live_until_the_end_that_they_are_told(
    store: Store, raw: Raw, ring: KeyRing, name: str, value: Any, left_ms: int
) -> None:
    """Also where the day has 25 hours, and where a millisecond of it is left."""
    midnight = datetime.combine(datetime.now(UTC).date() + timedelta(days=3), datetime.min.time(), UTC)
    now_ms = round(midnight.timestamp() * 1000) - left_ms
    keys = WidgetKeys(store, seal=ring, now_ms=lambda: now_ms)
    key = getattr(keys, name)(ID, USER)
    named = {"counter_visit": f"counter:{ID}:visitors", "like_user": f"like:{ID}:users"}[name]
    async for verb in each_write(key, value, end_of_day=midnight):
        for one in (key.key, named):
            late = datetime.now(UTC) + timedelta(milliseconds=await raw.left_ms(one)) - midnight
            assert abs(late) < timedelta(milliseconds=SLACK_MS), (one, verb)


@pytest.mark.parametrize("name", ["counter_visit", "like_user"])
async def test_a_mark_of_a_day_that_is_over_or_too_far_away_is_refused(keys: WidgetKeys, raw: Raw, name: str) -> None:
    key, value = getattr(keys, name)(ID, USER), SEEN if name == "counter_visit" else True
    for end in (datetime.now(UTC) - timedelta(seconds=1), datetime.now(UTC) + timedelta(hours=27)):
        with pytest.raises(BadValue, match="end_of_day"):
            await key.add(value, end_of_day=end)
    with pytest.raises(BadValue, match="end_of_day"):
        await key.add(value)
    assert await raw.keys() == set()


async def test_a_visitor_is_counted_once_a_day_in_one_step(keys: WidgetKeys, raw: Raw) -> None:
    for _ in range(3):
        await keys.atomically(
            keys.counter_visit(ID, USER).add(SEEN, **until("counter_visit")).required(),
            keys.counter_total(ID).increment(),
            keys.counter_daily(ID, date(2025, 8, 2)).increment(),
        )
    assert await raw.ask("GET", f"counter:{ID}:total") == b"1"
    assert await raw.ask("GET", f"counter:{ID}:daily:2025-08-02") == b"1"


@each_service
async def test_deleting_a_service_leaves_nothing_of_the_documents_checklist(
    keys: WidgetKeys, raw: Raw, service: Service
) -> None:
    """Mapping, record, totals, scores or messages, owner, index entry and marks, and nothing of anybody else."""
    for other in SERVICES:
        await make(keys, other, id_="other-ffffffff", url="https://other.example")
    before = await raw.keys()
    await make(keys, service)
    for number in range(3):
        for name, (values, value) in service.others.items():
            if values == (USER,):
                await getattr(keys, name)(ID, f"{USER}{number}").set(value, **until(name))
    made = await raw.keys() - before
    assert {f"url:{service.name}:https%3A%2F%2Fexample.com", f"{service.name}:{ID}"} <= made
    assert await raw.ask("ZCARD", f"{service.name}s:index") == 2

    assert await getattr(keys, service.name)(ID).delete() is True

    assert await raw.keys() == before
    assert await raw.ask("ZRANGE", f"{service.name}s:index", 0, -1) == [b"other-ffffffff"]


@each_service
async def test_a_plan_names_beforehand_all_that_a_delete_takes_along(
    keys: WidgetKeys, raw: Raw, service: Service
) -> None:
    await make(keys, service)
    plan = await getattr(keys, service.name)(ID).plan_delete()
    assert set(plan.keys) == await raw.keys() - {f"{service.name}s:index"}
    assert [step.member for step in plan.steps if step.key == f"{service.name}s:index"] == [ID]


@each_service
async def test_a_service_that_is_made_again_begins_anew(keys: WidgetKeys, raw: Raw, service: Service) -> None:
    await make(keys, service)
    await getattr(keys, service.name)(ID).delete()
    await make(keys, service)
    for name, (values, value) in service.others.items():
        key = getattr(keys, name)(ID, *values)
        if key.bound.family.kind_name == "Counter":
            assert await key.get() == value
        if key.bound.family.kind_name in ("SortedSet", "List"):
            assert await key.count() == 1


def test_all_that_has_an_id_is_in_one_slot_of_a_cluster() -> None:
    tagged = {name for name, family in WidgetKeys.families.items() if family.pattern.tag == "id"}
    assert tagged == {name for name, family in WidgetKeys.families.items() if "id" in family.pattern.names}
