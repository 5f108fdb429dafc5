"""Django's `SessionStore` on data sessions: each key is stored by itself, and an ended session stays ended."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.contrib.sessions.backends.base import SessionBase, UpdateError
from django.utils.dateparse import parse_datetime

from keystead import wait
from keystead.errors import BadValue
from keystead.integrations.django.session_parts import data_sessions, data_sessions_of_loop
from keystead.integrations.session_changes import has_times, merge_changes
from keystead.parts.datasessions import DataSession, DataSessions

_USER: Final = "_auth_user_id"  # django.contrib.auth.SESSION_KEY, whose module needs the user model
_EXPIRY: Final = "_session_expiry"


class SessionStore(SessionBase):  # type: ignore[misc]  # Django has no types
    """A session of Django. The session key is a token: only its digest is stored.

    `save` writes the keys that changed, so two requests that change different keys both survive. It raises UpdateError
    if the session has ended; nothing revives it. A session becomes one of the user with the save after `login()`, in
    the same atomic step, with a new session key. `cycle_key` is one atomic step.

    `set_expiry(seconds)` is an idle timeout: each use of the session counts, not only changes. `set_expiry` with a
    datetime or a timedelta is the moment at which it ends. Values are JSON.
    """

    _session_key: Any

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self._found: DataSession | None = None  # as it was last read or written
        self._missed: str | None = None  # the session key that led to no session

    @classmethod
    def clear_expired(cls) -> None:
        """Nothing to do: sessions expire in the store."""

    @classmethod
    async def aclear_expired(cls) -> None:
        """Nothing to do: sessions expire in the store."""

    # --- each operation, for both kinds of callers ---------------------------------------------------------

    def load(self) -> dict[str, Any]:
        return wait(self._load(data_sessions()))

    async def aload(self) -> dict[str, Any]:
        return await self._load(await data_sessions_of_loop())

    async def _load(self, sessions: DataSessions) -> dict[str, Any]:
        """The data; empty if there is no such session: then its key is not adopted."""
        found = await self._read(sessions, self.session_key)
        if found is None:
            self._missed, self._session_key = self.session_key, None
            return {}
        return dict(found.data)

    async def _read(self, sessions: DataSessions, session_key: str | None) -> DataSession | None:
        found = await sessions.load(session_key) if session_key else None
        own = found or None
        if session_key == self.session_key:
            self._found = own
        return own

    def exists(self, session_key: str | None) -> bool:
        return bool(wait(data_sessions().load(session_key or "")))

    async def aexists(self, session_key: str | None) -> bool:
        return bool(await (await data_sessions_of_loop()).load(session_key or ""))

    def create(self) -> None:
        wait(self._create(data_sessions()))

    async def acreate(self) -> None:
        await self._create(await data_sessions_of_loop())

    async def _create(self, sessions: DataSessions) -> None:
        """A new session with the data at hand. Insert-only.

        Raises UpdateError if another tab has just signed in: a new session would replace the cookie that it has got.
        """
        data = self._get_session(no_load=True)
        user = data.get(_USER)
        if user is None and self._missed is not None and await sessions.is_replaced(self._missed):
            raise UpdateError
        times = self._times(data)
        if _is_over(times):
            self._found, self._session_key = None, secrets.token_urlsafe(32)  # a key that leads nowhere
        else:
            # Visitors share no list, so each gets an owner of its own.
            client = "" if user is not None else secrets.token_hex(16)
            owner = None if user is None else str(user)
            self._adopt(await sessions.create(_texts(data), user=owner, client=client, **times))
        self.modified = True

    def save(self, must_create: bool = False) -> None:
        if must_create or self.session_key is None:
            return self.create()
        data = self._get_session()
        return wait(self._save(data_sessions(), data))

    async def asave(self, must_create: bool = False) -> None:
        if must_create or self.session_key is None:
            return await self.acreate()
        sessions = await data_sessions_of_loop()
        if not hasattr(self, "_session_cache"):
            self._session_cache = await self._load(sessions)
        return await self._save(sessions, self._session_cache)

    async def _save(self, sessions: DataSessions, data: dict[str, Any]) -> None:
        """Write what differs from what was read. Raises UpdateError if the session has ended."""
        found = self._found or await self._read(sessions, self.session_key)
        if found is None:
            raise UpdateError
        times, user = self._times(data), data.get(_USER)
        if _is_over(times):
            await sessions.end(found)
            return
        texts = _texts(data)
        if user is not None and found.user != str(user):
            saved = await sessions.sign_in(found, str(user), merge_changes(found, texts))
        else:
            saved = await sessions.save(found, texts)
        if saved and not has_times(saved, times):
            saved = await sessions.set_lifetime(saved, **times)
        if not saved:
            raise UpdateError
        self._adopt(saved)

    def delete(self, session_key: str | None = None) -> None:
        wait(self._delete(data_sessions(), session_key))

    async def adelete(self, session_key: str | None = None) -> None:
        await self._delete(await data_sessions_of_loop(), session_key)

    async def _delete(self, sessions: DataSessions, session_key: str | None) -> None:
        found = await self._read(sessions, self.session_key if session_key is None else session_key)
        if found is not None:
            await sessions.end(found)

    def flush(self) -> None:
        self.delete()
        self._forget()

    async def aflush(self) -> None:
        await self.adelete()
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self._found = self._session_key = self._missed = None

    def cycle_key(self) -> None:
        """A new session key for the same session, in one atomic step. The data at hand stays as it is."""
        data = self._get_session()
        wait(self._cycle_key(data_sessions(), data))

    async def acycle_key(self) -> None:
        sessions = await data_sessions_of_loop()
        if not hasattr(self, "_session_cache"):
            self._session_cache = {} if self.session_key is None else await self._load(sessions)
        await self._cycle_key(sessions, self._session_cache)

    async def _cycle_key(self, sessions: DataSessions, data: dict[str, Any]) -> None:
        found = self._found or await self._read(sessions, self.session_key)
        # Of a visitor at once: another may know the key. Of a user with the grace period, so that a sign-out in another
        # tab, which still has the old key, ends the session.
        rotated = await sessions.rotate(found, at_once=found.user is None) if found else None
        if rotated:
            self._adopt(rotated)
            self._session_cache = data
            self.modified = True
        else:  # there was none, or it has ended: its data is not carried over
            self._session_cache = data if self.session_key is None else {}
            self._missed = None  # a sign-in may replace the cookie
            await self._create(sessions)

    # --- inside --------------------------------------------------------------------------------------------

    def _adopt(self, session: DataSession) -> None:
        self._found, self._session_key = session, session.token
        self._session_cache = getattr(self, "_session_cache", None) or dict(session.data)

    def _times(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The timeouts of a session with this data, for the part: `idle`, or `ends_at`."""
        expiry = data.get(_EXPIRY)
        if isinstance(expiry, str):
            expiry = parse_datetime(expiry)
        if expiry is None or isinstance(expiry, int) or not hasattr(expiry, "timestamp"):
            seconds = expiry or self.get_session_cookie_age()  # 0: until the browser closes
            return {"idle": timedelta(seconds=seconds)}
        return {"ends_at": expiry.astimezone()}  # without USE_TZ, Django reckons in the time of the system


def _is_over(times: Mapping[str, Any]) -> bool:
    if "ends_at" in times:
        return bool(times["ends_at"] <= datetime.now(UTC))
    return bool(times["idle"] <= timedelta(0))


def _texts(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The data with text as keys, as the JSON of Django's own sessions has it."""
    texts = {name if isinstance(name, str) else str(name): value for name, value in data.items()}
    if len(texts) != len(data):
        raise BadValue("two keys of the session are the same as text; use text as keys")
    return texts
