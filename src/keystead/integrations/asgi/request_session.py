"""`request.session`: a dict whose changes are stored with the response, key by key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from keystead.errors import BadValue, Contended
from keystead.integrations.asgi.session_layer import log_gone
from keystead.integrations.asgi.types import event_of
from keystead.parts.datasessions import DataRecord, DataSession, DataSessions, Gone
from keystead.parts.datasessions.data_input import checked_owner
from keystead.parts.limit import LimitReached
from keystead.parts.sessions import Live
from keystead.parts.sessions.session_record import Reason

if TYPE_CHECKING:
    from keystead.integrations.asgi.request_response import RequestResponse

M = TypeVar("M", bound=BaseModel)
Data = Mapping[str, Any]

_security = logging.getLogger("keystead.security")

REQUEST_SESSION: Final = "keystead.session"  # in the scope, where no framework replaces it
_ACCESSORS: Final = (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__reversed__", "__ror__", "__setitem__", "copy", "get", "items", "keys", "pop", "popitem", "setdefault"),
    *("update", "values"),
)
_REMOVED: Final = Ellipsis  # a key that this request has removed; copies of it are itself
_NOT_LOADED: Final = "the session is not loaded yet: await request.session.load() first, because of lazy=True"


class RequestSession(dict[str, Any]):
    """The session of this browser as a dict of JSON values, `request.session`.

    Changes are stored when the response begins, also those within lists and dicts: only keys that differ are written,
    so two requests that change different keys both succeed. A session begins with the first value that is not empty
    (None, "", [], {}); it is anonymous until `sign_in`. `clear` ends it, and what is set afterwards begins a new one.

    Nothing is written for a response with a status of 500 or more, and nothing once the session has ended elsewhere.
    What changes after the response began, in a stream or a background task, is stored when the request is done, if
    there is a session by then. On a WebSocket changes are stored by `save`, and when the handler returns.

    `sign_in`, `rotate` and `end` write immediately, and set a cookie: call them before the response begins.
    """

    __slots__ = (
        "_accessed",
        "_ends",
        "_found",
        "_given",
        "_lost",
        "_models",
        "_reason",
        "_response",
        "_sessions",
        "_token",
    )

    def __init__(
        self, sessions: DataSessions, response: RequestResponse, found: DataSession | Gone | None, given: str | None
    ) -> None:
        """For the middleware. `given` is the token of the request; without `found` it is read when it is asked for."""
        super().__init__()
        self._sessions = sessions
        self._response = response
        self._given = given
        self._token = given if found is None else None  # to be read when it is asked for
        self._accessed = self._ends = self._lost = False
        self._models: dict[type[BaseModel], tuple[BaseModel, Data]] = {}
        self._found: DataSession | None = None
        self._reason: Reason | None = None
        self._hold(found)

    # --- reading ---------------------------------------------------------------------------------------------

    def mark_accessed(self) -> None:
        """Called by Starlette for each `request.session`, and by every access."""
        if self._token is not None:
            self._load_in_thread()
        self._accessed = self._response._used = True

    @property
    def user(self) -> str | None:
        """The id of the user who is signed in. None: the session is anonymous, or there is none."""
        self.mark_accessed()
        return None if self._found is None else self._found.user

    @property
    def id(self) -> str | None:
        """The id of the session, for `end_one`. It is not a secret and does not authenticate."""
        self.mark_accessed()
        return None if self._found is None else self._found.id

    @property
    def gone(self) -> Reason | None:
        """Why the session of the browser's token has ended: `expired`, `evicted`, `revoked`, `unknown` or `unreadable`.
        None if it is alive, or there was no token."""
        self.mark_accessed()
        return self._reason

    @property
    def csrf_token(self) -> str:
        """The CSRF token, for the header `x-csrf-token` or the field `csrf`; see `csrf=True`. It is not stored."""
        return self._response.csrf_token

    def typed(self, model: type[M]) -> M:
        """The session as a model. What changes in it is stored, too.

        Keys that the model does not have stay as they are. Raises BadValue if the session does not fit the model.
        """
        self.mark_accessed()
        held: Any = self._models.get(model)
        if held is None:
            try:
                made = model.model_validate(self._plain())
            except ValidationError as error:
                names = ", ".join(".".join(map(str, one["loc"])) for one in error.errors(include_input=False))
                raise BadValue(f"the session does not fit {model.__name__}: {names}") from None
            held = self._models[model] = made, made.model_dump(mode="json")
        found: M = held[0]
        return found

    async def load(self) -> None:
        """Read the session, if `lazy=True` has left that to you. One round trip; none if it has been read."""
        token, self._token = self._token, None
        if token is not None:
            try:
                found = await self._response._try(self._sessions.load(token))
            except BaseException:
                self._token = token
                raise
            if isinstance(found, Gone):
                log_gone(found, self._response.scope)
            self._hold(found)

    # --- signing in and out ------------------------------------------------------------------------------------

    async def sign_in(self, user: str, merge: Callable[[dict[str, Any]], Data] | None = None) -> None:
        """Make this the session of a user: with a new token, in one atomic step.

        merge   gets the data of the anonymous session, and returns that of the signed-in one; it may be called several
                times. Without it the data stays as it is

        What another tab saves meanwhile is kept. The session of another user ends, and its data is not taken over.
        Raises CapReached if the policy refuses another session.
        """
        self._response._refuse_without_cookies("sign_in")
        checked_owner(user)  # before anything ends
        await self.load()
        await self._end_cleared()
        found, merging = self._found, merge or _unchanged
        if found is not None and found.user not in (None, user):
            await self.end()
            found = None
        changes = self._changes()
        if found is not None:
            signing_in = self._sessions.sign_in(found, user, lambda newest: merging(_merged(newest, changes)))
            signed_in = await self._response._try(signing_in)
            if isinstance(signed_in, DataSession):
                return self._adopt(signed_in)
        return self._adopt(await self._response._try(self._create_for(user, changes, merging)))

    async def _create_for(
        self, user: str, changes: dict[str, Any], merging: Callable[[dict[str, Any]], Data]
    ) -> DataSession:
        """A session of the user, where the anonymous one has ended, or another tab has signed it in already."""
        same = {} if self._given is None else await self._sessions.data_signed_in(self._given, user)
        data = _merged(same, changes)
        return await self._sessions.create(data if same else merging(data), user=user)

    async def rotate(self) -> bool:
        """Replace the token of the session, for example after a change of rights. False if there is no session.

        Concurrent requests may use the old token for `policy.grace`. Of several concurrent rotations one takes effect.
        """
        self._response._refuse_without_cookies("rotate")
        await self.load()
        if not await self.save() or self._found is None:
            return False
        found = await self._response._try(self._sessions.rotate(self._found))
        if isinstance(found, Gone):
            return False
        self._adopt(found)
        return True

    async def end(self) -> bool:
        """Sign out: end the session, delete its cookie and empty this dict. False if there was none."""
        await self.load()
        self.clear()
        return await self._end_cleared()

    async def all(self) -> list[Live[DataRecord]]:
        """The live sessions of this user, latest sign-in first, without their data; empty if nobody is signed in."""
        user = await self._loaded_user()
        return [] if user is None else await self._response._try(self._sessions.list_for(user))

    async def end_one(self, id: str) -> bool:
        """End one session of this user by its id, from `all`. False if the user has no such session."""
        user = await self._loaded_user()
        if user is None:
            return False
        return await self.end() if id == self.id else await self._response._try(self._sessions.end_id(user, id))

    async def end_others(self) -> int:
        """End all other sessions of this user. Returns their number."""
        await self.load()
        return 0 if self._found is None else await self._response._try(self._sessions.end_others(self._found))

    async def end_all(self) -> int:
        """End all sessions of this user, including this one, in one atomic write. Returns their number."""
        user = await self._loaded_user()
        if user is None:
            return 0
        ended = await self._response._try(self._sessions.end_all(user))
        await self.end()
        return ended

    # --- writing -----------------------------------------------------------------------------------------------

    async def save(self) -> bool:
        """Write what has changed, now. False: the session has ended elsewhere, and nothing was written.

        The middleware calls it when the response begins. One round trip, none if nothing has changed. Raises BadValue
        for what is not JSON or too large, and LimitReached if this client address began too many sessions.
        """
        await self._end_cleared()
        self._take_over_models()
        if self._token is not None or self._lost:
            return not self._lost
        if self._found is None:
            if any(not _is_empty(value) for value in dict.values(self)):
                self._response._refuse_without_cookies("the first value of a session")
                await self._create()
            return True
        saved = await self._response._try(self._sessions.save(self._found, self._plain()))
        if isinstance(saved, Gone):
            self._lose(saved)
            return False
        self._found = saved
        return True

    async def change(self, function: Callable[[dict[str, Any]], Data]) -> bool:
        """Change the stored data by a function, atomically: it gets the latest data and returns the new one.

        It may be called several times. Two requests that change the same key this way both succeed. False: the session
        has ended, and nothing was written.
        """
        await self.load()
        self.mark_accessed()
        if not await self.save():
            return False
        if self._found is None:
            self._replace(function(self._plain()))
            return True
        changed = await self._response._try(self._sessions.change(self._found, function))
        if isinstance(changed, Gone):
            self._lose(changed)
            return False
        self._hold(changed)
        return True

    def clear(self) -> None:
        """Empty the dict and end the session; what is set afterwards begins a new one."""
        self.mark_accessed()
        self._ends = True
        self._models.clear()
        super().clear()

    def _replace(self, data: Data) -> None:
        super().clear()
        self._models.clear()
        super().update(data)

    async def _create(self) -> None:
        try:
            self._adopt(await self._response._try(self._begin()))
        except LimitReached:
            _security.warning(
                "a client address began too many anonymous sessions; behind a proxy, let the server take the address "
                "from its headers",
                extra=event_of("too-many-sessions", self._response.scope),
            )
            raise

    async def _begin(self) -> DataSession:
        if self._given is not None and self._reason == "unknown" and await self._sessions.is_replaced(self._given):
            # Another tab signs in: a cookie of a new session would replace the one that it has got.
            raise Contended("the session was signed in by another request a moment ago; send this one again")
        return await self._sessions.create(self._plain(), client=self._response.client)

    async def _end_cleared(self) -> bool:
        """End the session that `clear` has left."""
        if not self._ends:
            return False
        found, self._ends = self._found, False
        self._reason, self._lost = None, False
        if found is None:
            return False
        ended = await self._response._try(self._sessions.end(found))
        self._found = None
        self._response.set_session_cookie(None)
        return ended

    # --- inside ------------------------------------------------------------------------------------------------

    def _hold(self, found: DataSession | Gone | None) -> None:
        """Take over what was read. Its data is ours; `texts` has what is stored."""
        if isinstance(found, DataSession):
            self._found, self._reason = found, None
            self._replace(found.data)
        elif found is not None:
            self._reason = found.reason

    def _adopt(self, session: DataSession) -> None:
        """Make this the current session, and set its cookie for as long as it can last."""
        policy = self._sessions.anonymous if session.user is None else self._sessions.policy
        left_ms = session.created_at_ms + policy.absolute_ms - self._sessions._now_ms()
        self._response.set_session_cookie(session.token, left_ms // 1000)
        self._hold(session)
        self._lost = False

    def _lose(self, gone: Gone) -> None:
        """The session has ended elsewhere: this request begins no other one. The browser keeps its token."""
        self._found, self._reason, self._lost = None, gone.reason, True
        self._replace({})

    def _load_in_thread(self) -> None:
        """Read the session for a handler that runs in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loop = self._response.loop
            if loop is None:
                raise RuntimeError(_NOT_LOADED) from None
            asyncio.run_coroutine_threadsafe(self.load(), loop).result()
        else:
            raise RuntimeError(_NOT_LOADED)

    def _take_over_models(self) -> None:
        for model, (held, before) in self._models.items():
            now = held.model_dump(mode="json")
            super().update({name: value for name, value in now.items() if value != before[name]})
            self._models[model] = held, now

    def _changes(self) -> dict[str, Any]:
        """What this request has changed: new values, and keys that it removed."""
        self._take_over_models()
        if self._found is None:
            return deepcopy(self._plain())
        before = self._found.stored
        changed = {name: value for name, value in dict.items(self) if name not in before or before[name] != value}
        return deepcopy(changed) | {name: _REMOVED for name in before if not dict.__contains__(self, name)}

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in dict.items(self)}  # noqa: C416 - `dict` would call each accessor

    async def _loaded_user(self) -> str | None:
        await self.load()
        return self.user

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are plain dicts."""
        return dict, (self._plain(),)


def _accessor(name: str) -> Any:
    method = getattr(dict, name)

    @wraps(method)
    def access(self: RequestSession, /, *given: Any, **named: Any) -> Any:
        self.mark_accessed()
        return method(self, *given, **named)

    return access


for _name in _ACCESSORS:
    setattr(RequestSession, _name, _accessor(_name))


def _merged(newest: Data, changes: Data) -> dict[str, Any]:
    return {name: value for name, value in {**newest, **deepcopy(changes)}.items() if value is not _REMOVED}


def _unchanged(data: dict[str, Any]) -> Data:
    return data


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)
