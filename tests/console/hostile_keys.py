"""A keyspace that somebody hostile has filled: text that would run as markup, wherever a text can be."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from keystead.console.console_keys import ConsoleKeys
from keystead.parts.audit import Audit
from keystead.parts.outbox import GivenUp, OutboxKeys, QueueName, Trouble
from keystead.parts.outbox.outbox_keys import StoredMessage
from keystead.parts.schedule.schedule_keys import RunEntry, ScheduleKeys
from keystead.parts.sessions import Policy, SessionRecord, Sessions
from keystead.schema import Hash, Keyspace, List, Log, Set, SortedSet, Value, after, never, sliding
from keystead.schema import link as relation
from keystead.stores import Store

PAYLOADS: Final = (
    "<script>window.broken=1</script>",
    '"><img src=x onerror=window.broken=1>',
    "' onfocus=window.broken=1 autofocus x='",
    "</textarea></title><svg onload=window.broken=1>",
    "javascript:window.broken=1",
    "{{7*7}}{window.broken=1}",
)


class Note(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str
    link: str = PAYLOADS[4]
    tags: list[str] = list(PAYLOADS)


class HostileKeys(Keyspace):
    """Notes of all kinds."""

    part_keyspaces = (OutboxKeys,)

    index = SortedSet("bad:index", str, lifetime=never("emptied with the notes"), doc="All notes.")
    note = Value(
        "bad:note:{uid}",
        Note,
        lifetime=after("7d"),
        listed_in=index,
        owns="draft",
        member_of="bad:{uid}",
        doc="A note.",
    )
    draft = Value("bad:draft:{uid}", str, lifetime=after("7d"), doc="A draft.")
    fields = Hash("bad:fields:{uid}", dict[str, str], lifetime=after("7d"), doc="Fields of any name.")
    names = Set("bad:names:{uid}", str, lifetime=after("7d"), doc="Names.")
    queue = List("bad:list:{uid}", str, lifetime=after("7d"), doc="A list.")
    lines = Log("bad:log:{uid}", str, keep=100, lifetime=after("7d"), doc="A log.")
    visits = Set("bad:visits:{uid}", str, lifetime=sliding("30d", touch_every="1h"), doc="The sessions of a user.")
    visit = Value(
        "bad:visit:{sid:token}",
        SessionRecord,
        lifetime=sliding("30d", touch_every="1h"),
        listed_in=relation("visits", admits=True),
        tag="sid",
        doc="A session.",
    )


async def fill_hostile(store: Store) -> HostileKeys:
    keys = HostileKeys(store)
    sessions = Sessions(keys.visit, Policy(idle="30d", absolute="90d"))
    audit = Audit(ConsoleKeys(store).audit())
    for number, text in enumerate(PAYLOADS):
        await keys.note(text).set(Note.model_validate({"text": text, text: text}))
        for owner in (text, f"gone{number}{text}"):
            await keys.draft(owner).set(text)
        await keys.fields(text).set({text: text})
        await keys.names(text).add(text)
        await keys.queue(text).append(text)
        await keys.lines(text).append(text)
        await sessions.create(SessionRecord(uid=text))
        await audit.note("console-edited", who=text, what=text, where=text, why=text)
        raw: Any = text.encode()
        await store.run([("SET", b"odd:" + raw, raw), ("SET", b"%d:" % number + raw, raw)])
        entry = RunEntry(number=number, due_ms=0, began_ms=0, ended_ms=9, outcome="failed", error=text, by=text)
        await (
            ScheduleKeys(store)
            .history("console.measure")
            .append(entry.model_copy(update={"result": {text: text}, "error": text if number % 2 else None}))
        )
    await _fill_queue(store)
    return keys


async def _fill_queue(store: Store) -> None:
    outbox = OutboxKeys(store)
    queue: Any = QueueName("webhook", "orders")
    all_texts = " ".join(PAYLOADS)
    await outbox.queue(*queue).append(StoredMessage(id="msg_1", created_ms=0, payload={all_texts: all_texts}))
    await outbox.waiting().put({queue: 0})
    trouble = Trouble(failures=3, since_ms=0, next_ms=60_000, error=all_texts, id="msg_1", attempts=3)
    await outbox.trouble(*queue).set(trouble)
    dead = GivenUp(at_ms=0, why="undeliverable", count=1, id=all_texts, attempts=1, error=all_texts)
    await outbox.given_up(*queue).append(dead)
    await outbox.dead(*queue).append(StoredMessage(id=all_texts, created_ms=0, payload={}))
