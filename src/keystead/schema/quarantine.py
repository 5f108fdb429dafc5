"""Quarantine: content that its family cannot read, kept for a while under another key."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel

from keystead.errors import BadValue, CrossSlot, WrongKind
from keystead.schema.chunked_reading import AT_ONCE, SIZES, entries_of, whole
from keystead.schema.clock import store_clock_ms
from keystead.schema.codec import OmittedIfNone
from keystead.schema.family import Family
from keystead.schema.family_lookup import Belonging
from keystead.schema.keyspace import Keyspace
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import after
from keystead.schema.times import EpochMs
from keystead.stores import Command, Required, Step, Store, absent, field_holds, holds

KEPT: Final = "30d"
_COPIES: Final = 1_000
_LARGEST: Final = AT_ONCE
_ARGUMENTS: Final = 6_000  # of one command in an atomic step

Kind = Literal["string", "hash", "set", "zset", "list", "stream"]


class Quarantined(BaseModel):
    """The content of a key, byte for byte, and why it was set aside.

    `content` is the base64 of a string. For other kinds it is JSON: a list of the entries, all bytes in base64.
    With `part`, only these entries were removed from the key. `expires_at` is the deadline that the key had.
    """

    key: str
    kind: Kind
    content: str
    found_at: EpochMs
    code: str
    expires_at: OmittedIfNone[EpochMs] = None
    part: bool = False
    key_base64: OmittedIfNone[str] = None  # of a key that is not UTF-8


class QuarantineKeys(Keyspace):
    """Content that `keystead doctor --fix` sets aside; `keystead doctor --restore KEY` restores it."""

    # Its role is `cache` so that it fits every store, including those that evict.
    quarantine = Value(
        "keystead:quarantine:{key:uri<=200}[:{copy:int}]",
        Quarantined,
        lifetime=after(KEPT),
        role="cache",
        doc="content that its family could not read, as it was found",
    )


FAMILY: Final[Family[Any]] = QuarantineKeys.families["quarantine"]


def with_quarantine(places: Sequence[Belonging]) -> list[Belonging]:
    """The same stores, with the quarantine as a further family."""
    return [Belonging(place.store, [*place.bounds, *QuarantineKeys(place.store).bounds()]) for place in places]


def quarantine_name(key: str) -> str:
    """The quarantine key for this key."""
    return FAMILY.pattern.render({"key": key})


async def set_aside(
    store: Store, raw_key: bytes, kind: str, code: str, now_ms: int, left_ms: int, content: Any = None
) -> str:
    """Move the whole content of a key into quarantine. Returns why that was not done; empty if it was.

    One atomic step, guarded by the copied content (changes in the middle of a list are not noticed).
    `content` is the value of a string; other kinds are read here.
    """
    if kind == "string":
        if content is None:
            return "it is gone"
        return await _move(
            store, _Aside(raw_key, kind, _base64(content), code, now_ms, left_ms), [holds(raw_key, content)],
            [("DEL", raw_key)],
        )  # fmt: skip
    try:
        [size] = await store.run([(SIZES[kind], raw_key)])
        if size > _LARGEST:
            return f"it has {size:,} entries, too many to be set aside in one step; inspect it, and delete it by hand"
        [reply] = await store.run([whole(kind, raw_key)])
    except WrongKind:
        return "it changed meanwhile"
    entries = entries_of(kind, reply)
    aside = _Aside(raw_key, kind, _entries_json(kind, entries), code, now_ms, left_ms)
    guards, commands = _empty_steps(kind, raw_key, entries)
    return await _move(store, aside, guards, commands)


async def set_entries_aside(
    store: Store, key: str, kind: str, entries: Sequence[Any], now_ms: int, left_ms: int
) -> str:
    """Move some entries of a key into quarantine. Returns why that was not done; empty if it was."""
    aside = _Aside(key.encode(), kind, _entries_json(kind, entries), "unreadable", now_ms, left_ms, part=True)
    guards, commands = _removal_steps(kind, key.encode(), entries)
    return await _move(store, aside, guards, commands)


class _Aside:
    """A quarantine copy to be written."""

    def __init__(
        self, raw_key: bytes, kind: str, content: str, code: str, now_ms: int, left_ms: int, part: bool = False
    ) -> None:
        self.raw_key = raw_key
        self.name = raw_key.decode("utf-8", "backslashreplace")
        is_text = self.name.encode() == raw_key
        self.value = Quarantined.model_validate(
            {
                "key": self.name,
                "kind": kind,
                "content": content,
                "found_at": now_ms,
                "code": code,
                "expires_at": now_ms + left_ms if left_ms >= 0 else None,
                "part": part,
                "key_base64": None if is_text else _base64(raw_key),
            }
        )

    def write(self, keys: QuarantineKeys, copy: int | None) -> tuple[str, Command]:
        key = keys.quarantine(key=self.name, copy=copy)
        return key.key, key.add(self.value).in_batch()[0]


async def _move(store: Store, aside: _Aside, guards: Sequence[Step], commands: Sequence[Step]) -> str:
    keys = QuarantineKeys(store)
    largest = store.guarantees.value_max_bytes
    for copy in (None, *range(2, _COPIES)):
        name, write = aside.write(keys, copy)
        if largest is not None and len(write[2]) > largest:  # type: ignore[arg-type]
            return "it is too large to be set aside; inspect it, and delete it by hand"
        try:
            outcome = await store.atomically([*guards, Required(write), *commands])
            stopped_at = outcome.stopped_at
        except CrossSlot:
            stopped_at = await _move_across_slots(store, name, write, guards, commands)
        except WrongKind:
            return "it changed meanwhile"
        if stopped_at is None:
            return ""
        if stopped_at != len(guards):
            return "it changed meanwhile"
    return "there are too many copies of it"


async def _move_across_slots(
    store: Store, name: str, write: Command, guards: Sequence[Step], commands: Sequence[Step]
) -> int | None:
    """Write the copy first: an interruption leaves a surplus copy, and loses nothing."""
    [written] = await store.run([write])
    if written is None:
        return len(guards)
    outcome = await store.atomically([*guards, *commands])
    if not outcome:
        await store.run([("DEL", name)])
        return 0
    return None


def _empty_steps(kind: str, key: bytes, entries: Sequence[Any]) -> tuple[list[Step], list[Step]]:
    """Steps that remove all that was read, and fail if anything is left: a key without entries does not exist."""
    if kind == "list":
        return [], [("LTRIM", key, len(entries), -1), absent(key)]
    guards, commands = _removal_steps(kind, key, entries)
    # An empty log continues to exist, so it is deleted. Entries appended since it was read are deleted with it.
    return guards, [*commands, ("DEL", key) if kind == "stream" else absent(key)]


def _removal_steps(kind: str, key: bytes, entries: Sequence[Any]) -> tuple[list[Step], list[Step]]:
    """Steps that remove these entries as they were read."""
    match kind:
        case "hash":
            guards: list[Step] = [field_holds(key, field, value) for field, value in entries]
            return guards, [Required(("HDEL", key, *part)) for part in _parts([field for field, _ in entries])]
        case "zset":
            return [], [Required(("ZREM", key, *part)) for part in _parts([member for member, _ in entries])]
        case "set":
            return [], [Required(("SREM", key, *part)) for part in _parts(entries)]
        case "list":
            return [], [Required(("LREM", key, 0, item)) for item in dict.fromkeys(entries)]
        case _:
            return [], [Required(("XDEL", key, *part)) for part in _parts([entry_id for entry_id, _ in entries])]


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(things), _ARGUMENTS):
        yield things[at : at + _ARGUMENTS]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _entries_json(kind: str, entries: Sequence[Any]) -> str:
    match kind:
        case "hash":
            found: list[Any] = [[_base64(field), _base64(value)] for field, value in entries]
        case "zset":
            found = [[_base64(member), repr(float(score))] for member, score in entries]
        case "stream":
            found = [[entry_id.decode(), [_base64(part) for part in fields]] for entry_id, fields in entries]
        case _:
            found = [_base64(entry) for entry in entries]
    return json.dumps(found, separators=(",", ":"))


# --- and back ----------------------------------------------------------------------------------------------


async def restore(keys: QuarantineKeys, key: str) -> Quarantined | None:
    """Restore the latest quarantine copy of a key, with the deadline that it had. The copy is deleted.

    None: there is no copy. Raises BadValue if the key exists by now, or if its deadline is over. One atomic step; in a
    cluster the key is written before its copy is deleted.
    """
    found = await _last_copy(keys, key)
    if found is None:
        return None
    copy, raw, aside = found
    now_ms = await store_clock_ms(keys.quarantine.store)
    expires_at_ms = None if aside.expires_at is None else round(aside.expires_at.timestamp() * 1000)
    if expires_at_ms is not None and expires_at_ms <= now_ms:
        raise BadValue(f"{key!r} expired at {aside.expires_at:%Y-%m-%d %H:%M:%S} UTC; it is not restored")
    raw_key = key.encode() if aside.key_base64 is None else base64.b64decode(aside.key_base64)
    commands = list(_restore_commands(raw_key, aside))
    if expires_at_ms is not None:
        commands.append(("PEXPIREAT", raw_key, expires_at_ms))
    guards: list[Step] = [] if aside.part else [absent(raw_key)]
    store = keys.quarantine.store
    try:
        outcome = await store.atomically([*guards, holds(copy.key, raw), *commands, ("DEL", copy.key)])
    except CrossSlot:
        outcome = await store.atomically([*guards, *commands])
        if outcome:
            await store.run([("DEL", copy.key)])
    except WrongKind:
        raise BadValue(f"{key!r} now has another kind; nothing was changed") from None
    if not outcome:
        raise BadValue(f"{key!r} exists again; nothing was changed. Delete it first to restore the old one")
    return aside


async def _last_copy(keys: QuarantineKeys, key: str) -> tuple[ValueKey[Quarantined], bytes, Quarantined] | None:
    bound = keys.quarantine
    found: tuple[ValueKey[Quarantined], bytes, Quarantined] | None = None
    async for page in bound.store.scan(bound.glob({"key": key})):
        for name in page:
            if bound.parse(name) is None:
                continue
            one = bound.key(name.decode())
            [raw] = await bound.store.run([("GET", name)])
            aside = None if raw is None else bound.family.codec.decode(raw, one.key)
            if aside is not None and aside.key == key and (found is None or aside.found_at > found[2].found_at):
                found = one, raw, aside
    return found


def _restore_commands(key: bytes, aside: Quarantined) -> Iterator[Command]:
    """The commands that write the quarantined content back."""
    if aside.kind == "string":
        yield ("SET", key, base64.b64decode(aside.content))
        return
    entries: list[Any] = json.loads(aside.content)
    decode = base64.b64decode
    match aside.kind:
        case "hash":
            pairs = [decode(part) for entry in entries for part in entry]
            yield from (("HSET", key, *part) for part in _parts(pairs))
        case "set":
            yield from (("SADD", key, *part) for part in _parts([decode(entry) for entry in entries]))
        case "zset":
            scored = [part for member, score in entries for part in (score, decode(member))]
            yield from (("ZADD", key, *part) for part in _parts(scored))
        case "list":
            yield from (("RPUSH", key, *part) for part in _parts([decode(entry) for entry in entries]))
        case _:
            for entry_id, fields in entries:
                yield ("XADD", key, entry_id, *map(decode, fields))
