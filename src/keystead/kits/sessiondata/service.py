"""Session data: four verbs, the same on every store, over a session or over what is kept for a user."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from keystead.errors import BadDeclaration, BadValue
from keystead.kits.sessiondata.keys import LONGEST, SessionDataKeys
from keystead.kits.sessiondata.models import SessionField, UserField
from keystead.kits.setting_types import LimitsByName, known
from keystead.parts.apikeys import ApiKeys
from keystead.parts.limit import NamedLimits
from keystead.parts.sizes import size_bytes
from keystead.schema import Operation, attempts
from keystead.schema.kinds import HashKey
from keystead.schema.lifetime import duration_ms

__all__ = [
    "KEY_MAX",
    "LIMITS",
    "START",
    "SessionArea",
    "SessionData",
    "SessionDataSettings",
    "TooLong",
    "TooMany",
    "UserArea",
]

START: Final = SessionField("StartTime")  # what every session has, from its beginning to its end

KEY_MAX: Final = 256  # characters, of a key and of a page
# How often a minute, by what is counted; 0: as often as anybody likes.
LIMITS: Final = {"guesses": 30, "requests": 0}

_TOUCH_EVERY_MS: Final = 60_000


class TooLong(BadValue):
    """A key, a page or a value that is longer than session data may be. Nothing was stored."""

    code = "too-long"


class TooMany(BadValue):
    """One value more than a session or a user may have. Nothing was stored."""

    code = "too-many"


class SessionDataSettings(BaseModel):
    """The table `[sessiondata]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    retention: str = Field("1440m", description="How long a session is kept after it was last renewed.")
    renewed_by: Literal["use", "write"] = Field(
        "use",
        description="What lets a session live for another `retention`: every `use` of it, written down at most once a "
        "minute, or only a `write`. Removing something never does.",
    )
    value_max: str = Field("1MB", description="The largest value, in bytes of UTF-8, such as 64KiB or 1MB.")
    fields_max: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="How many values a session may have that stay, how many that are read once, and how many a user.",
    )
    check_content_type: bool = Field(
        False, description="Whether the Sessions API takes only bodies that say that they are `application/json`."
    )
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict,
        description="Requests in a minute, 0 for any number: `guesses` of an address with a wrong API key, and "
        "`requests` with one API key.",
    )

    @field_validator("retention")
    @classmethod
    def _is_a_duration(cls, given: str) -> str:
        try:
            ms = duration_ms(given, "retention")
        except BadDeclaration as error:
            raise ValueError(str(error)) from None
        if not 2 * _TOUCH_EVERY_MS <= ms <= duration_ms(LONGEST):
            raise ValueError(f"retention is from 2m to {LONGEST}")
        return given

    @field_validator("value_max", mode="before")
    @classmethod
    def _is_a_size(cls, given: Any) -> str:
        try:
            return str(size_bytes(given))
        except ValueError:
            raise ValueError("a size is a number of bytes, or a number with a unit, such as 1MB or 64KiB") from None


class SessionData:
    """What an application remembers: of a session until it ends, and of a user for good.

        session_id = await data.begin()
        await data.session(session_id).set("ViewMode", "Card", page="Items/100")
        await data.user(42).set("Theme", "Dark")

    **A key and a page together name one value**, whatever characters they hold; no page is a name of its own. What is
    set to be read once takes the place of what was there under that name, and the other way round.

    **Dead stays dead.** `begin` makes a session, under an id that nobody had before, and `move` gives it another such
    id; nothing else does. Every other write is to a session that is there, in one atomic step. So what was cleared or
    has expired is not revived by a write in flight, which is told (False), and the caller begins a new one.

    The area of a user has no beginning and no end. It is there as soon as something is set, and lives in the role
    `durable`; of a `set` and a `clear` at the same time the later one counts.

    Where a store is down, every verb raises its error: a value that cannot be read is never said to be absent. Values
    written at the same time under different names do not touch each other; under one name the last one stays.
    """

    def __init__(self, keys: SessionDataKeys, settings: SessionDataSettings | None = None) -> None:
        self._keys = keys
        self.settings: Final = settings or SessionDataSettings()
        self.api_keys: Final = ApiKeys(keys.api_key, keys.api_keys())
        self.limit: Final = NamedLimits(keys.asked, LIMITS | self.settings.limits, keys.now_ms)
        self._retention_ms = duration_ms(self.settings.retention)
        self._value_max = size_bytes(self.settings.value_max)

    async def begin(self, values: Mapping[str, str] | None = None) -> str:
        """Make a session, with these values if there are any; its id.

        It is a secret: whoever has it has the session. The store knows its digest only. One round trip, atomic. Raises
        TooLong and TooMany.
        """
        started = datetime.fromtimestamp(self._keys.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        fields = {_writable(key, None): self._check_value(value) for key, value in (values or {}).items()}
        if len(fields) > self.settings.fields_max:
            raise self._too_many()
        while True:
            session_id = _new_id()
            key = self._keys.session(guid=guid_of(session_id))
            if await key.add({START: started, **fields}, ends_at=self._ends_at_ms()):
                return session_id

    async def move(self, session_id: str) -> str | None:
        """Give a session another id, as at a login: whoever knew the old one has nothing from then on.

        The new id; None: there is no such session. All that it holds is there under the new id before the old one ends,
        and it lives for another `retention`. Of several callers one gets an id. A write in flight is moved along, or
        told (False) that the session has ended; none is lost.

        Two ids lie in two slots of a cluster, so this is no single step but three round trips: a copy, which nobody can
        know, and then the end of the old one, only if it is still what was copied; else again. A process that dies on
        the way leaves a copy that expires, or an id that nobody was told. Raises Contended where it is written to all
        the time.
        """
        old = self.session(session_id)
        async for _ in attempts("this session"):
            plain, once = await old._see()
            if not plain:
                return None
            new_id = _new_id()
            await self.session(new_id)._fill(plain, once, self._ends_at_ms())
            if await old._end_if(plain, once):
                return new_id
            await self.session(new_id).clear()
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def session(self, session_id: str) -> SessionArea:
        """What is remembered of a session. Any text is taken: one that is no id has no session. Nothing is sent."""
        return SessionArea(self, guid_of(session_id))

    def user(self, user_id: int) -> UserArea:
        """What is remembered of a user. Nothing is sent."""
        return UserArea(self, user_id)

    def _ends_at_ms(self) -> int:
        return self._keys.now_ms() + self._retention_ms

    def _too_many(self) -> TooMany:
        return TooMany(f"there are {self.settings.fields_max} values here, and no more are taken; remove some first")

    def _check_value(self, value: Any) -> str:
        if type(value) is not str:
            raise BadValue(f"a value of session data is a text, not {type(value).__name__}")
        # A character has up to four bytes, so most values need not be encoded to be known as short enough.
        if len(value) * 4 > self._value_max and len(value.encode("utf-8", "surrogatepass")) > self._value_max:
            raise TooLong(f"a value of session data has at most {self._value_max} bytes")
        return value


class SessionArea:
    """The data of one session."""

    def __init__(self, data: SessionData, guid: str) -> None:
        self._data = data
        self._keys = data._keys
        self._session: HashKey[dict[SessionField, str], SessionField, str] = data._keys.session(guid=guid)
        self._once: HashKey[dict[SessionField, str], SessionField, str] = data._keys.read_once(guid=guid)

    async def exists(self) -> bool:
        """Whether there is such a session. One round trip; it is no use of the session."""
        return await self._session.exists()

    async def get(self, key: str, page: str | None = None) -> str | None:
        """The value of this name; None: there is none, or no such session.

        What was set to be read once is consumed by it, and nothing else is: of several callers one gets it. One round
        trip for a value that stays; a second one, atomic, where it is to be read once or not there.
        """
        field = _session_field(key, page)
        value, left = await self._keys.run(self._session.field(field), self._session.remaining())
        due = timedelta(milliseconds=self._data._retention_ms - _TOUCH_EVERY_MS)
        is_due = self._data.settings.renewed_by == "use" and left is not None and left <= due
        renewals = self._renewals(self._data._ends_at_ms()) if is_due else ()
        if value is None and left is not None:
            # Between two reads somebody may set the same name the other way: only one step sees all that is there. The
            # renewal is in it, because a store that fails after the value was consumed would lose it for good.
            done = await self._keys.atomically(self._session.field(field), self._once.consume_field(field), *renewals)
            kept, once, *_ = done.values
            value = once if kept is None else kept
        elif renewals:
            await self._keys.atomically(*renewals)
        return value

    async def set(self, key: str, value: str, page: str | None = None) -> bool:
        """Write a value that stays until it is removed or the session ends.

        False: there is no such session, and nothing was stored. One round trip, atomic; a second one where the session
        is full. Raises TooLong and TooMany.
        """
        field, ends_at = _writable(key, page), self._data._ends_at_ms()
        return await self._write(
            _room_for(self._session, field, self._data.settings.fields_max + 1),  # and START
            self._session.update({field: self._data._check_value(value)}, ends_at=ends_at),
            self._once.remove(field),
            self._once.extend(ends_at),
        )

    async def set_once(self, key: str, value: str, page: str | None = None) -> bool:
        """Write a value that is gone once it was read. False: there is no such session.

        One round trip, atomic; a second one where there are as many such values as may be. Raises TooLong and TooMany.
        """
        field, ends_at = _writable(key, page), self._data._ends_at_ms()
        return await self._write(
            _room_for(self._once, field, self._data.settings.fields_max),
            self._once.put({field: self._data._check_value(value)}, ends_at=ends_at),
            self._session.remove(field),
            *self._renewals(ends_at),
        )

    async def remove(self, key: str, page: str | None = None) -> bool:
        """Take out the value of this name, whether it stays or is to be read once. False: there was none.

        The session does not live longer for it. One round trip, atomic.
        """
        field = _writable(key, page)
        done = await self._keys.atomically(self._session.remove(field), self._once.remove(field))
        return any(done.values)

    async def clear(self) -> bool:
        """End the session: all of it is gone, for good. False: there was none. One round trip, atomic.

        A `set` that is under way takes effect before this, and is gone, or after it, and is refused.
        """
        return await self._session.delete()

    async def _write(self, rooms: Iterable[Operation[bool]], *writes: Operation[Any]) -> bool:
        """Write where there is room in one of these ways. False: there is no such session. Raises TooMany."""
        for room in rooms:
            # Only a session that is there is written to: a clear that came before this stays.
            done = await self._keys.atomically(self._session.exists().required(), room, *writes)
            if done or done.stopped_at == 0:
                return bool(done)
        raise self._data._too_many()

    async def _see(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """What both hashes hold, at one moment. One round trip."""
        done = await self._keys.atomically(self._session.see(), self._once.see())
        plain, once = done.values
        return plain, once

    async def _fill(self, plain: dict[bytes, bytes], once: dict[bytes, bytes], ends_at: int) -> None:
        """Put into both hashes what others held. One round trip, atomic."""
        held = ((self._session, plain), (self._once, once))
        await self._keys.atomically(*(key.copy(seen, ends_at=ends_at) for key, seen in held if seen))

    async def _end_if(self, plain: dict[bytes, bytes], once: dict[bytes, bytes]) -> bool:
        """End the session if it holds this and nothing else. One round trip, atomic."""
        still = (self._session.holds(plain), self._once.holds(once))
        return bool(await self._keys.atomically(*still, self._session.delete()))

    def _renewals(self, ends_at: int) -> tuple[Operation[bool], Operation[bool]]:
        return self._session.extend(ends_at), self._once.extend(ends_at)


class UserArea:
    """The data of one user, across all sessions. It never ends by itself."""

    def __init__(self, data: SessionData, user_id: int) -> None:
        self._data = data
        self._area: HashKey[dict[UserField, str], UserField, str] = data._keys.user_area(userId=user_id)

    async def get(self, key: str, page: str | None = None) -> str | None:
        """The value of this name; None: there is none. One round trip."""
        return await self._area.field(_user_field(key, page))

    async def set(self, key: str, value: str, page: str | None = None) -> None:
        """Write a value that stays until it is removed. One round trip, atomic; a second one where the area is full.

        Raises TooLong and TooMany.
        """
        field = _user_field(key, page)
        put = self._area.put({field: self._data._check_value(value)})
        for room in _room_for(self._area, field, self._data.settings.fields_max):
            if await self._data._keys.atomically(room, put):
                return
        raise self._data._too_many()

    async def remove(self, key: str, page: str | None = None) -> bool:
        """Take out the value of this name. False: there was none. One round trip, atomic."""
        return bool(await self._area.remove(_user_field(key, page)))

    async def clear(self) -> bool:
        """Take out everything. False: there was nothing. One round trip, atomic."""
        return await self._area.delete()


def guid_of(session_id: str) -> str:
    """What stands for the id of a session in its keys: its digest, in hex. It opens nothing."""
    return sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def _new_id() -> str:
    return secrets.token_urlsafe(32)


def _room_for(key: HashKey[Any, Any, Any], field: Any, most: int) -> Iterator[Operation[bool]]:
    """Guards that stand before the write of a field, one after the other: there is room, or the field is there already.

    One guard behind the write would do, but then Redis would keep a copy of all fields with each write, to undo it.
    """
    yield key.at_most(most - 1)
    yield key.has(field).required()


def _session_field(key: str, page: str | None) -> SessionField:
    return SessionField(*_name(key, page))


def _user_field(key: str, page: str | None) -> UserField:
    return UserField(*_name(key, page))


def _writable(key: str, page: str | None) -> SessionField:
    field = _session_field(key, page)
    if field == START:
        raise BadValue(f"{START.key} is what a session begins and ends with; it is read, and not changed")
    return field


def _name(key: Any, page: Any) -> tuple[str, str | None]:
    """Raises BadValue for what is no name, and TooLong."""
    if type(key) is not str or not key:
        raise BadValue("a key of session data is a text, and not empty")
    if page is not None and (type(page) is not str or not page):
        raise BadValue("a page of session data is a text, and not empty; without a page, leave it out")
    if len(key) > KEY_MAX or (page is not None and len(page) > KEY_MAX):
        raise TooLong(f"a key and a page of session data have at most {KEY_MAX} characters each")
    return key, page
