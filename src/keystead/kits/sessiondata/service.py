"""Session data: get, set, remove and clear values of a session or a user, the same on every store."""

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
from keystead.kits.setting_types import LimitsByName, check_limit_names
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

START: Final = SessionField("StartTime")  # every session has it

KEY_MAX: Final = 256  # characters, of a key and of a page
LIMITS: Final = {"guesses": 30, "requests": 0}  # per minute; 0: no limit

_TOUCH_EVERY_MS: Final = 60_000


class TooLong(BadValue):
    """A key, a page or a value is too long. Nothing was stored."""

    code = "too-long"


class TooMany(BadValue):
    """The session or the user already has the maximum number of values. Nothing was stored."""

    code = "too-many"


class SessionDataSettings(BaseModel):
    """The table `[sessiondata]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    retention: str = Field("1440m", description="How long a session is kept after it was last renewed.")
    renewed_by: Literal["use", "write"] = Field(
        "use",
        description="What renews a session for another `retention`: every `use` (written at most once a minute) or "
        "only a `write`. Removing a value never does.",
    )
    value_max: str = Field("1MB", description="The largest value, in bytes of UTF-8, such as 64KiB or 1MB.")
    fields_max: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="The most values: of a session, of its read-once values, and of a user, each.",
    )
    check_content_type: bool = Field(
        False, description="Whether the Sessions API requires the content type `application/json`."
    )
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        default_factory=dict,
        description="Rate limits per minute, 0 for no limit: `guesses` (wrong API keys from an address) and "
        "`requests` (with one API key).",
    )

    @field_validator("retention")
    @classmethod
    def _check_retention(cls, given: str) -> str:
        try:
            ms = duration_ms(given, "retention")
        except BadDeclaration as error:
            raise ValueError(str(error)) from None
        if not 2 * _TOUCH_EVERY_MS <= ms <= duration_ms(LONGEST):
            raise ValueError(f"retention must be from 2m to {LONGEST}")
        return given

    @field_validator("value_max", mode="before")
    @classmethod
    def _check_size(cls, given: Any) -> str:
        try:
            return str(size_bytes(given))
        except ValueError:
            raise ValueError("a size is a number of bytes, or a number with a unit, such as 1MB or 64KiB") from None


class SessionData:
    """Key-value storage per session, until it ends, and per user, without expiry.

        session_id = await data.begin()
        await data.session(session_id).set("ViewMode", "Card", page="Items/100")
        await data.user(42).set("Theme", "Dark")

    **A name is a key and a page, or a key without a page.** Both may hold any characters. Setting a read-once value
    replaces a kept value of the same name, and the other way round.

    **Writes never revive a session.** Only `begin` and `move` create one, under a new random id. Every other write
    checks, in the same atomic step, that the session exists, and returns False if it was cleared or has expired.

    A user's area exists as soon as something is set, in the role `durable`. Of a concurrent `set` and `clear` the later
    one wins.

    During a store outage every method raises: an unreadable value is never reported as absent. Concurrent writes to
    different names do not affect each other; of writes to one name the last one wins.
    """

    def __init__(self, keys: SessionDataKeys, settings: SessionDataSettings | None = None) -> None:
        self._keys = keys
        self.settings: Final = settings or SessionDataSettings()
        self.api_keys: Final = ApiKeys(keys.api_key, keys.api_keys())
        self.limit: Final = NamedLimits(keys.asked, LIMITS | self.settings.limits, keys.now_ms)
        self._retention_ms = duration_ms(self.settings.retention)
        self._value_max = size_bytes(self.settings.value_max)

    async def begin(self, values: Mapping[str, str] | None = None) -> str:
        """Create a session, with initial values if given. Returns its id.

        The id is a secret that grants access to the session; the store holds only its digest. One round trip, atomic.
        Raises TooLong and TooMany.
        """
        started = datetime.fromtimestamp(self._keys.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        fields = {_writable_field(key, None): self._check_value(value) for key, value in (values or {}).items()}
        if len(fields) > self.settings.fields_max:
            raise self._too_many()
        while True:
            session_id = _new_id()
            key = self._keys.session(guid=guid_of(session_id))
            if await key.add({START: started, **fields}, ends_at=self._ends_at_ms()):
                return session_id

    async def move(self, session_id: str) -> str | None:
        """Change the id of a session at login (protection against session fixation). The old id becomes invalid.

        Returns the new id; None: there is no such session. The session is complete under the new id before the old one
        ends, and is renewed for `retention`. Of concurrent callers one gets an id. A concurrent write is moved along,
        or returns False because the session has ended; none is lost.

        In a cluster the two ids are in different slots, so this takes three round trips instead of one atomic step:
        copy to a new random id, then delete the old session if it is unchanged, otherwise retry. A process that dies in
        between leaves a copy under an unknown id, which expires. Raises Contended if the session changes constantly.
        """
        old = self.session(session_id)
        async for _ in attempts("this session"):
            plain, once = await old._snapshot()
            if not plain:
                return None
            new_id = _new_id()
            await self.session(new_id)._fill(plain, once, self._ends_at_ms())
            if await old._end_if(plain, once):
                return new_id
            await self.session(new_id).clear()
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def session(self, session_id: str) -> SessionArea:
        """The data of a session. Any text is accepted; an unknown id has no session. Sends nothing to the store."""
        return SessionArea(self, guid_of(session_id))

    def user(self, user_id: int) -> UserArea:
        """The data of a user. Sends nothing to the store."""
        return UserArea(self, user_id)

    def _ends_at_ms(self) -> int:
        return self._keys.now_ms() + self._retention_ms

    def _too_many(self) -> TooMany:
        return TooMany(f"the limit of {self.settings.fields_max} values is reached; remove some first")

    def _check_value(self, value: Any) -> str:
        if type(value) is not str:
            raise BadValue(f"a value of session data must be text, not {type(value).__name__}")
        # A character has at most four bytes, so most values need not be encoded to be checked.
        if len(value) * 4 > self._value_max and len(value.encode("utf-8", "surrogatepass")) > self._value_max:
            raise TooLong(f"a value of session data can have at most {self._value_max} bytes")
        return value


class SessionArea:
    """The data of one session."""

    def __init__(self, data: SessionData, guid: str) -> None:
        self._data = data
        self._keys = data._keys
        self._session: HashKey[dict[SessionField, str], SessionField, str] = data._keys.session(guid=guid)
        self._once: HashKey[dict[SessionField, str], SessionField, str] = data._keys.read_once(guid=guid)

    async def exists(self) -> bool:
        """Whether the session exists. One round trip; it does not renew the session."""
        return await self._session.exists()

    async def get(self, key: str, page: str | None = None) -> str | None:
        """A value; None: there is none, or no such session.

        A read-once value is consumed: of concurrent callers one gets it. One round trip for a kept value; a second one,
        atomic, for a read-once or missing value.
        """
        field = _session_field(key, page)
        value, left = await self._keys.run(self._session.field(field), self._session.remaining())
        due = timedelta(milliseconds=self._data._retention_ms - _TOUCH_EVERY_MS)
        is_due = self._data.settings.renewed_by == "use" and left is not None and left <= due
        renewals = self._renewals(self._data._ends_at_ms()) if is_due else ()
        if value is None and left is not None:
            # Who may interleave: a write that turns this name from kept to read-once, or back. One step sees both. It
            # includes the renewal: a store failure after the value was consumed would lose it.
            done = await self._keys.atomically(self._session.field(field), self._once.consume_field(field), *renewals)
            plain, once, *_ = done.values
            value = once if plain is None else plain
        elif renewals:
            await self._keys.atomically(*renewals)
        return value

    async def set(self, key: str, value: str, page: str | None = None) -> bool:
        """Write a value. It stays until it is removed or the session ends.

        False: there is no such session, and nothing was stored. One round trip, atomic; a second one if the session is
        full. Raises TooLong and TooMany.
        """
        field, ends_at = _writable_field(key, page), self._data._ends_at_ms()
        return await self._write(
            _room_for(self._session, field, self._data.settings.fields_max + 1),  # + 1 for START
            self._session.update({field: self._data._check_value(value)}, ends_at=ends_at),
            self._once.remove(field),
            self._once.extend(ends_at),
        )

    async def set_once(self, key: str, value: str, page: str | None = None) -> bool:
        """Write a read-once value (a flash message): the first `get` removes it. False: there is no such session.

        One round trip, atomic; a second one if there are `fields_max` such values. Raises TooLong and TooMany.
        """
        field, ends_at = _writable_field(key, page), self._data._ends_at_ms()
        return await self._write(
            _room_for(self._once, field, self._data.settings.fields_max),
            self._once.put({field: self._data._check_value(value)}, ends_at=ends_at),
            self._session.remove(field),
            *self._renewals(ends_at),
        )

    async def remove(self, key: str, page: str | None = None) -> bool:
        """Remove a kept or read-once value. False: there was none. One round trip, atomic; it renews nothing."""
        field = _writable_field(key, page)
        done = await self._keys.atomically(self._session.remove(field), self._once.remove(field))
        return any(done.values)

    async def clear(self) -> bool:
        """End the session and delete all its data. False: there was none. One round trip, atomic.

        A concurrent `set` comes before this and is deleted, or comes after it and is refused.
        """
        return await self._session.delete()

    async def _write(self, rooms: Iterable[Operation[bool]], *writes: Operation[Any]) -> bool:
        """Write if one of the `rooms` guards holds. False: there is no such session. Raises TooMany."""
        for room in rooms:
            # Who may interleave: `clear`. The guard and the write are one step, so a cleared session is not revived.
            done = await self._keys.atomically(self._session.exists().required(), room, *writes)
            if done or done.stopped_at == 0:
                return bool(done)
        raise self._data._too_many()

    async def _snapshot(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """A consistent snapshot of both hashes. One round trip."""
        done = await self._keys.atomically(self._session.see(), self._once.see())
        plain, once = done.values
        return plain, once

    async def _fill(self, plain: dict[bytes, bytes], once: dict[bytes, bytes], ends_at: int) -> None:
        """Write a snapshot into both hashes. One round trip, atomic."""
        hashes = ((self._session, plain), (self._once, once))
        await self._keys.atomically(*(key.copy(seen, ends_at=ends_at) for key, seen in hashes if seen))

    async def _end_if(self, plain: dict[bytes, bytes], once: dict[bytes, bytes]) -> bool:
        """End the session if it still equals this snapshot. One round trip, atomic."""
        unchanged = (self._session.holds(plain), self._once.holds(once))
        return bool(await self._keys.atomically(*unchanged, self._session.delete()))

    def _renewals(self, ends_at: int) -> tuple[Operation[bool], Operation[bool]]:
        return self._session.extend(ends_at), self._once.extend(ends_at)


class UserArea:
    """The data of one user, across all sessions. It never expires."""

    def __init__(self, data: SessionData, user_id: int) -> None:
        self._data = data
        self._area: HashKey[dict[UserField, str], UserField, str] = data._keys.user_area(userId=user_id)

    async def get(self, key: str, page: str | None = None) -> str | None:
        """A value; None: there is none. One round trip."""
        return await self._area.field(_user_field(key, page))

    async def set(self, key: str, value: str, page: str | None = None) -> None:
        """Write a value. One round trip, atomic; a second one if the area is full. Raises TooLong and TooMany."""
        field = _user_field(key, page)
        put = self._area.put({field: self._data._check_value(value)})
        for room in _room_for(self._area, field, self._data.settings.fields_max):
            if await self._data._keys.atomically(room, put):
                return
        raise self._data._too_many()

    async def remove(self, key: str, page: str | None = None) -> bool:
        """Remove a value. False: there was none. One round trip, atomic."""
        return bool(await self._area.remove(_user_field(key, page)))

    async def clear(self) -> bool:
        """Remove all values. False: there were none. One round trip, atomic."""
        return await self._area.delete()


def guid_of(session_id: str) -> str:
    """The hex digest of a session id, which its keys are named after. It grants no access."""
    return sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def _new_id() -> str:
    return secrets.token_urlsafe(32)


def _room_for(key: HashKey[Any, Any, Any], field: Any, most: int) -> Iterator[Operation[bool]]:
    """Guards to try before writing a field: there is room, or the field already exists.

    A single guard after the write would do, but Redis would then copy all fields on each write, to be able to undo it.
    """
    yield key.at_most(most - 1)
    yield key.has(field).required()


def _session_field(key: str, page: str | None) -> SessionField:
    return SessionField(*_check_name(key, page))


def _user_field(key: str, page: str | None) -> UserField:
    return UserField(*_check_name(key, page))


def _writable_field(key: str, page: str | None) -> SessionField:
    field = _session_field(key, page)
    if field == START:
        raise BadValue(f"{START.key} is read-only")
    return field


def _check_name(key: Any, page: Any) -> tuple[str, str | None]:
    """Raises BadValue and TooLong."""
    if type(key) is not str or not key:
        raise BadValue("a key of session data must be non-empty text")
    if page is not None and (type(page) is not str or not page):
        raise BadValue("a page of session data must be non-empty text; omit it for a value without a page")
    if len(key) > KEY_MAX or (page is not None and len(page) > KEY_MAX):
        raise TooLong(f"a key and a page of session data can have at most {KEY_MAX} characters each")
    return key, page
