"""Webhooks: events are delivered in order, signed, and never to private addresses."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from keystead import Store, connect
from keystead.kits.widgets.service import Widgets
from keystead.parts.webhook import verify
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    Reason,
    delivering,
    found_by_doctor,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    used,
)
from tests.listening import listening, port_of
from tests.parts.sessions.relays import Killed, Mortal

pytestmark = pytest.mark.usefixtures("quick_hash")

HOOK = "https://hooks.example.net/services/x"


class Receiver:
    """A real HTTP server that records requests, and answers with the status that a test sets."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.url = ""
        self._came = asyncio.Event()

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    async def has(self, number: int) -> None:
        async with asyncio.timeout(60):
            while len(self.got) < number:
                self._came.clear()
                await self._came.wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        if status == 200:
            self.got.append((headers, body))
            self._came.set()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with listening(receiver.answer) as server:
        receiver.url = f"http://127.0.0.1:{port_of(server)}/hook/secret"
        yield receiver


async def queued(store: Store, name: str, id: str) -> list[dict[str, Any]]:
    """The queued events."""
    held = await Kept(store).ask("LRANGE", f"outbox:queue:{name}:{id}", 0, -1)
    return [json.loads(one)["payload"] for one in held]


@both
async def test_events_are_signed_and_in_order(store: Store, receiver: Receiver) -> None:
    async with delivering(store, private_webhooks=True) as widgets:
        created = await widgets.counters.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)
        assert created.webhook_secret is not None
        assert created.webhook_secret.startswith("whsec_")
        await asyncio.gather(*(widgets.counters.increment(created.id, somebody(one % 20)) for one in range(60)))
        await receiver.has(20)
    assert [(one["event"], one["data"]) for one in receiver.told] == [
        ("counter.increment", {"previousCount": one, "newCount": one + 1, "incrementBy": 1}) for one in range(20)
    ]
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 20
    for headers, body in receiver.got:
        signed = headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"]
        assert verify(created.webhook_secret, *signed, body)
        assert not verify(created.webhook_secret, *signed, body + b" ")
        told = json.loads(body)
        assert told["serviceId"] == created.id
        assert told["url"] == URL
        assert told.keys() == {
            *("event", "timestamp", "serviceId", "url", "data", "content", "text", "allowed_mentions")
        }
    assert await queued(store, "counter", created.id) == []


async def test_the_data_of_each_event(memory: Store) -> None:
    widgets = service_on(memory)
    ids = {}
    for name in SERVICES:
        ids[name] = (await service_of(widgets, name).create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
    await widgets.counters.set(owner(), 41, visitor=ME)
    await widgets.counters.increment(ids["counter"], ME)
    await widgets.counters.increment(ids["counter"], ME)  # already counted: no event
    for _ in range(2):
        await widgets.likes.toggle(ids["like"], ME)
    await widgets.rankings.submit(ids["ranking"], ME, "Ann <b>&", 12, "12 s")
    await widgets.rankings.submit(ids["ranking"], somebody(1), "Ann <b>&", 3)
    posted = await widgets.boards.post(ids["bbs"], ME, "Hello @everyone", "Ann")
    await widgets.boards.edit(ids["bbs"], posted.message_id, posted.edit_token, visitor=ME, message="Bye")
    await widgets.boards.remove(ids["bbs"], posted.message_id, posted.edit_token, visitor=ME)
    said = {name: [(one["event"], one["data"]) for one in await queued(memory, name, ids[name])] for name in SERVICES}
    message = {"messageId": posted.message_id, "author": "Ann"}
    assert said == {
        "counter": [("counter.increment", {"previousCount": 41, "newCount": 42, "incrementBy": 1})],
        "like": [
            ("like.toggle", {"previousLikes": 0, "newLikes": 1, "userAction": "like"}),
            ("like.toggle", {"previousLikes": 1, "newLikes": 0, "userAction": "unlike"}),
        ],
        "ranking": [("ranking.submit", {"name": "Ann <b>&", "score": 12, "displayScore": "12 s"})],
        "bbs": [
            ("bbs.post", message | {"message": "Hello @everyone"}),
            ("bbs.edit", message | {"message": "Bye"}),
            ("bbs.delete", {"messageId": posted.message_id}),
        ],
    }


async def test_an_event_has_a_sentence_without_mentions(memory: Store, receiver: Receiver) -> None:
    async with delivering(memory, private_webhooks=True) as widgets:
        id = (await widgets.boards.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)).id
        await widgets.boards.post(id, ME, "Hello @everyone <!channel> {0} {__class__}", "Ann")
        await receiver.has(1)
    [told] = receiver.told
    assert told["content"] == f"{URL}: Ann: Hello @everyone <!channel\\> {{0}} {{\\_\\_class\\_\\_}}"
    assert told["text"] == f"{URL}: Ann: Hello @everyone &lt;!channel&gt; {{0}} {{__class__}}"
    assert told["allowed_mentions"] == {"parse": []}


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_event_counts_are_exact_with_two_processes(store_url: str, store: Store) -> None:
    async with connect(store_url) as second:
        one, two = service_on(store), service_on(second)
        counter = (await one.counters.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
        like = (await one.likes.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
        await asyncio.gather(*([one, two][at % 2].counters.increment(counter, somebody(at)) for at in range(60)))
        await asyncio.gather(*([one, two][at % 2].likes.toggle(like, somebody(at % 20)) for at in range(50)))
    assert [event["data"]["newCount"] for event in await queued(store, "counter", counter)] == list(range(1, 61))
    steps = [(event["data"]["previousLikes"], event["data"]["newLikes"]) for event in await queued(store, "like", like)]
    assert len(steps) == 50
    assert steps[0][0] == 0
    assert all(abs(after - before) == 1 for before, after in steps)
    assert all(one[1] == two[0] for one, two in pairwise(steps))
    assert steps[-1][1] == (await one.likes.get(like)).total == 10


async def test_a_stale_process_sends_the_first_event_of_a_new_webhook(memory: Store) -> None:
    one, other = service_on(memory), service_on(memory)
    id = (await one.counters.create(URL, TOKEN, visitor=ME)).id
    await one.counters.increment(id, somebody(1))
    await other.counters.update_settings(owner(), visitor=ME, webhook_url=HOOK)
    await one.counters.increment(id, somebody(2))
    assert [event["data"]["newCount"] for event in await queued(memory, "counter", id)] == [2]
    await other.counters.update_settings(owner(), visitor=ME, webhook_url=None)
    await one.counters.increment(id, somebody(3))
    assert len(await queued(memory, "counter", id)) == 1


Act = Callable[[Widgets, str, dict[str, str]], Awaitable[Any]]
EVENTS: dict[str, tuple[str, Act]] = {
    "visit": ("counter", lambda widgets, id, _: widgets.counters.increment(id, ME)),
    "like": ("like", lambda widgets, id, _: widgets.likes.toggle(id, ME)),
    "score": ("ranking", lambda widgets, id, _: widgets.rankings.submit(id, ME, "late", 500)),
    "post": ("bbs", lambda widgets, id, _: widgets.boards.post(id, ME, "late")),
    "edit": ("bbs", lambda widgets, id, mine: widgets.boards.edit(id, **mine, visitor=ME, message="late")),
    "remove": ("bbs", lambda widgets, id, mine: widgets.boards.remove(id, **mine, visitor=ME)),
}


@pytest.mark.parametrize("what", EVENTS)
async def test_a_crash_leaves_both_the_change_and_its_event_or_neither(memory: Store, what: str) -> None:
    (name, act), kept, seen = EVENTS[what], Kept(memory), set()
    for lives in range(20):
        await kept.empty()
        first = service_on(memory)
        id = (await service_of(first, name).create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
        mine = {}
        if name == "bbs":
            posted = await first.boards.post(id, somebody(1), "mine")
            mine = {"message_id": posted.message_id, "edit_token": posted.edit_token}
        before, waiting = await service_of(first, name).get(id), len(await queued(memory, name, id))
        try:
            await act(service_on(Mortal(memory, lives)), id, mine)
            died = False
        except Killed:
            died = True
        changed = (await service_of(first, name).get(id)) != before
        assert len(await queued(memory, name, id)) - waiting == changed
        seen.add(changed)
        if not died:
            break
    assert lives < 19
    assert seen == {False, True}


@both
async def test_queued_events_are_deleted_with_their_widget(store: Store, receiver: Receiver) -> None:
    receiver.statuses = [500]
    async with delivering(store, private_webhooks=True) as widgets:
        for name in SERVICES:
            service = service_of(widgets, name)
            id = (await service.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)).id
            receiver.statuses = [500] * 50
            await used(widgets, name, id, 3)
            await service.delete(owner(), visitor=ME)
        # A queue that was being tried when it was dropped writes nothing more.
        await widgets.hooks.outbox.deliver_due()
    assert receiver.got == []
    assert await Kept(store).keys() == set()


@both
async def test_a_failed_delivery_is_retried(store: Store, receiver: Receiver, clock: Clock) -> None:
    receiver.statuses = [500]
    async with delivering(store, clock, private_webhooks=True) as widgets:
        id = (await widgets.counters.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)).id
        await widgets.counters.increment(id, somebody(1))
        await widgets.counters.increment(id, somebody(2))
        async with asyncio.timeout(60):
            while (await widgets.hooks.outbox.state("counter", id)).trouble is None:
                pass
        assert await found_by_doctor(store) == []
        clock.move("1h")
        await widgets.hooks.outbox.deliver_due()
        await receiver.has(2)
    assert [one["data"]["newCount"] for one in receiver.told] == [1, 2]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://hooks.example.net/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://[::1]/",
            "https://10.0.0.1/",
        ),
        *("https://169.254.169.254/latest/meta-data", "https://192.168.1.1/", "https://[fe80::1]/", "https://0/"),
        *("https://2130706433/", "https://user:pass@hooks.example.net/", "ftp://a.example", "nonsense", 5, ["x"]),
    ],
)
async def test_webhooks_to_private_addresses_are_refused(memory: Store, url: Any) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    for name in SERVICES:
        with Reason() as reason:
            await service_of(widgets, name).create(URL, TOKEN, visitor=ME, webhook_url=url)
        assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "webhookUrl"})
        assert "user" not in str(reason.more) + reason.sentence.replace("user name", "")
        assert await kept.keys() == set()
    for name in SERVICES:
        await service_of(widgets, name).create(f"{URL}/2", TOKEN, visitor=ME)
        change = service_of(widgets, name).update_settings(owner(f"{URL}/2"), visitor=ME, webhook_url=url)
        assert await refused(change) == "VALIDATION_ERROR"


async def test_a_private_webhook_is_not_sent_after_the_setting_changes(memory: Store, receiver: Receiver) -> None:
    widgets = service_on(memory, private_webhooks=True)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)).id
    await widgets.counters.increment(id, ME)
    async with delivering(memory) as strict:
        await strict.hooks.outbox.deliver_due()
        [given_up] = (await strict.hooks.outbox.state("counter", id)).given_up
    assert given_up.why == "undeliverable"
    assert "hook/secret" not in await Kept(memory).everything()
    assert receiver.got == []


async def test_webhooks_can_be_disabled(memory: Store) -> None:
    allowed, without = service_on(memory), service_on(memory, webhooks=False)
    id = (await allowed.counters.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).id
    assert await refused(without.likes.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)) == "VALIDATION_ERROR"
    await without.counters.increment(id, ME)
    assert await queued(memory, "counter", id) == []


async def test_each_webhook_has_its_own_secret_shown_once(memory: Store) -> None:
    for name in SERVICES:
        service = service_of(service_on(memory), name)
        first = await service.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)
        assert (await service.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)).webhook_secret is None
        second = await service.update_settings(owner(), visitor=ME, webhook_url=HOOK)
        assert first.webhook_secret != second.webhook_secret is not None
        assert (await service.get(first.id)).webhook_secret is None
        gone = await service.update_settings(owner(), visitor=ME, webhook_url=None)
        assert gone.webhook_secret is None


async def test_queued_events_never_reach_the_next_owner_of_a_page(memory: Store, receiver: Receiver) -> None:
    """Deleted by the command line, which does not know the outbox."""
    first = service_on(memory, private_webhooks=True)
    id = (await first.boards.create(URL, TOKEN, visitor=ME, webhook_url=receiver.url)).id
    await first.boards.post(id, ME, "for the first owner alone")
    await first.keys.bbs(id).delete()
    async with delivering(memory, private_webhooks=True) as widgets:
        await widgets.boards.create(URL, "another-token", visitor=ME, webhook_url=receiver.url)
        await widgets.boards.post(id, somebody(1), "for the second")
        await receiver.has(1)
    assert [told["data"]["message"] for told in receiver.told] == ["for the second"]
    assert "of" not in receiver.told[0]
