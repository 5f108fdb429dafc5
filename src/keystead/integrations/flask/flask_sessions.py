"""Server-side sessions for Flask on any store."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import Any, Final

from flask import Flask, Request, Response, current_app, session
from flask.sessions import SessionInterface, SessionMixin
from werkzeug.exceptions import ServiceUnavailable

from keystead import Store
from keystead.errors import BadDeclaration, Contended, KeysteadError, StoreError
from keystead.integrations.flask.flask_session import FlaskSession
from keystead.integrations.loop_stores import SharedStore, synchronous_store, wait_blocking
from keystead.integrations.outages import RETRY_AFTER_S, is_temporary
from keystead.integrations.session_changes import has_times, merge_changes
from keystead.parts.datasessions import DataRecord, DataSession, DataSessionKeys, DataSessions, Gone, data_session_keys
from keystead.parts.sessions import Live, Policy
from keystead.schema.lifetime import duration_ms

_log: Final = logging.getLogger("keystead.flask")
_ENDED: Final = Gone("revoked")


class KeysteadSessions(SessionInterface):
    """Sessions in a store of Keystead, for `flask.session`: `KeysteadSessions(app, "redis://localhost:6379/0")`.

    url                  the URL of a store, or a store; by default `app.config["KEYSTEAD_STORE"]`
    prefix               the beginning of the keys; applications that share a store need different ones
    user_key             the key of the session that names its user: `_user_id` is that of Flask-Login
    sessions_per_user    how many sessions a user can have; a further sign-in ends the oldest
    anonymous_lifetime   the idle timeout of sessions without a user, if that is shorter
    max_age              the longest lifetime of a session, however often it is used

    Cookies follow the settings SESSION_COOKIE_*; PERMANENT_SESSION_LIFETIME is the idle timeout, of the browser's
    cookie if `session.permanent`, and of the store in any case. A session begins with its first write. A request writes
    only the keys that it changed, and nothing once the session has ended. When `user_key` appears in the session, it
    becomes one of that user with a new token, in one atomic step; when it disappears, that session ends.

    A store outage, in views as well, is a 503 with `Retry-After`; so is a write that came too late, because another tab
    has just signed in. An error handler of the application for 503 makes the response.
    """

    pickle_based = False

    def __init__(
        self,
        app: Flask | None = None,
        url: str | Store | None = None,
        *,
        prefix: str = "flask",
        user_key: str = "_user_id",
        sessions_per_user: int | None = None,
        anonymous_lifetime: str | timedelta | None = None,
        max_age: str | timedelta = "400d",
    ) -> None:
        self._url = url
        self._shared = None if url is None or isinstance(url, str) else SharedStore(url)
        self._user_key = user_key
        self._anonymous_ms = None if anonymous_lifetime is None else duration_ms(anonymous_lifetime, "lifetime")
        self._policies = (
            Policy(idle=max_age, absolute=max_age, cap=sessions_per_user),
            Policy(idle=max_age, absolute=max_age, cap=None),
        )
        self.keyspace: type[DataSessionKeys] = data_session_keys(*self._policies, prefix=prefix)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Use these sessions in the application. Raises the error of a wrong URL, and BadDeclaration for a cookie that
        browsers would refuse."""
        self._store_of(app)
        self._check_cookie(app)
        for kind in (StoreError, Contended):
            app.register_error_handler(kind, lambda error: _unavailable(app, error))
        app.session_interface = self
        app.extensions["keystead_sessions"] = self

    # --- for views -------------------------------------------------------------------------------------------

    def list_sessions(self, user: Any) -> list[Live[DataRecord]]:
        """The live sessions of a user, latest sign-in first. `id` is not a secret."""
        return wait_blocking(self._sessions().list_for(str(user)))

    def end_session(self, user: Any, id: str) -> bool:
        """End one session of a user, by its id in `list_sessions`. False: this user has no such session."""
        return wait_blocking(self._sessions().end_id(str(user), id))

    def end_sessions(self, user: Any) -> int:
        """End all sessions of a user; returns how many. One atomic step."""
        return wait_blocking(self._sessions().end_all(str(user)))

    def end_other_sessions(self) -> int:
        """End all sessions of the user of this request but its own; returns how many. 0 if nobody is signed in."""
        found = session.found if isinstance(session, FlaskSession) and not session.new else None
        return 0 if found is None else wait_blocking(self._sessions().end_others(found))

    def regenerate(self, session: SessionMixin | None = None) -> None:
        """Give the session a new token at the end of this request. A sign-in does so by itself.

        The old one ends at once; of a signed-in session after ten seconds, for requests that are under way.
        """
        changed: Any = _current() if session is None else session
        changed.is_regenerated = changed.modified = True

    # --- for Flask -------------------------------------------------------------------------------------------

    def open_session(self, app: Flask, request: Request) -> FlaskSession:
        sessions = self._sessions(app)
        token = request.cookies.get(self.get_cookie_name(app), "")
        is_permanent = bool(app.config.get("SESSION_PERMANENT", False))  # the setting of Flask-Session
        return FlaskSession(token, lambda token: wait_blocking(sessions.load(token)), is_permanent=is_permanent)

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        """Write the changes. If the session has ended meanwhile, nothing is written, and one line is logged.

        If the store is down, or another tab has just signed in, the response becomes a 503.
        """
        if not isinstance(session, FlaskSession) or not (session.is_loaded or session.modified):
            return  # this request did not use it
        response.vary.add("Cookie")
        before = None if session.new else session.found
        try:
            saved = wait_blocking(self._save(self._sessions(app), app, session))
        except (StoreError, Contended) as error:
            _replace(response, app.make_response(_unavailable(app, error)))
            return
        if isinstance(saved, Gone):
            _log.info("a session ended during a request; its changes were not stored")
        elif saved is None:
            if before is not None:
                self._delete_cookie(app, response)
        elif before is None or saved.token != before.token or self._is_refreshed(app, session, saved):
            self._set_cookie(app, session, saved.token, response)

    async def _save(self, sessions: DataSessions, app: Flask, session: FlaskSession) -> DataSession | Gone | None:
        """The session as stored. None: it has no data, or ended itself; Gone: another request ended it."""
        data, found = session.tagged(), session.found
        user = data.get(self._user_key)
        idle = self._idle(app, user)
        signed_out = found is not None and found.user is not None and user is None
        if found is not None and (not data or signed_out or idle <= timedelta(0)):
            has_ended, found = await sessions.end(found), None
            if data and not has_ended:
                return _ENDED  # its data is not carried over
        if not data or idle <= timedelta(0):
            return None
        if found is None:
            return await self._create(sessions, session, data, idle)
        saved: DataSession | Gone
        if user is not None and found.user != str(user):
            saved = await sessions.sign_in(found, str(user), merge_changes(found, data))
        else:
            saved = await sessions.save(found, data)
            if saved and session.is_regenerated:
                # Of a visitor at once: another may know the token. Of a user with the grace period, so that a sign-out
                # in another tab, which still has the old token, ends the session.
                saved = await sessions.rotate(saved, at_once=user is None)
        if saved and not has_times(saved, {"idle": idle}):
            saved = await sessions.set_lifetime(saved, idle=idle)
        return saved

    async def _create(
        self, sessions: DataSessions, session: FlaskSession, data: dict[str, Any], idle: timedelta
    ) -> DataSession | Gone:
        user = data.get(self._user_key)
        if user is None and session.new and await sessions.is_replaced(session.given):
            # A new session would replace the cookie that the other tab has got.
            raise Contended("another tab has just signed in; send this request again")
        # Visitors share no list, so each gets an owner of its own.
        client, named = secrets.token_hex(16), None if user is None else str(user)
        return await sessions.create(data, user=named, client=client, idle=idle)

    def _idle(self, app: Flask, user: Any) -> timedelta:
        idle = app.permanent_session_lifetime
        if user is None and self._anonymous_ms is not None:
            return min(idle, timedelta(milliseconds=self._anonymous_ms))
        return idle

    # --- the cookie ------------------------------------------------------------------------------------------

    def get_cookie_secure(self, app: Flask) -> bool:
        """As SESSION_COOKIE_SECURE; in any case for a name that demands it."""
        return super().get_cookie_secure(app) or self.get_cookie_name(app).startswith(("__Host-", "__Secure-"))

    def _is_refreshed(self, app: Flask, session: FlaskSession, saved: DataSession) -> bool:
        # An aged token would replace the new one, which the browser got from a parallel request.
        return self.should_set_cookie(app, session) and not saved.aged

    def _check_cookie(self, app: Flask) -> None:
        name, domain, path = self.get_cookie_name(app), self.get_cookie_domain(app), self.get_cookie_path(app)
        if name.startswith("__Host-") and (domain or path != "/"):
            raise BadDeclaration(
                "browsers refuse a __Host- cookie with a domain or a path: leave SESSION_COOKIE_DOMAIN unset and set "
                'SESSION_COOKIE_PATH = "/", or rename SESSION_COOKIE_NAME'
            )

    def _attributes(self, app: Flask) -> dict[str, Any]:
        """The same for setting and for deleting: a browser deletes only the cookie that it has."""
        attributes: dict[str, Any] = {
            "domain": self.get_cookie_domain(app),
            "path": self.get_cookie_path(app),
            "secure": self.get_cookie_secure(app),
            "httponly": self.get_cookie_httponly(app),
            "samesite": self.get_cookie_samesite(app) or "Lax",
        }
        if hasattr(self, "get_cookie_partitioned"):  # Flask 3.1
            attributes["partitioned"] = self.get_cookie_partitioned(app)
        return attributes

    def _set_cookie(self, app: Flask, session: FlaskSession, token: str, response: Response) -> None:
        self._check_cookie(app)
        expires = self.get_expiration_time(app, session)
        response.set_cookie(self.get_cookie_name(app), token, expires=expires, **self._attributes(app))
        response.headers.setdefault("Cache-Control", "no-store")

    def _delete_cookie(self, app: Flask, response: Response) -> None:
        response.delete_cookie(self.get_cookie_name(app), **self._attributes(app))
        response.headers.setdefault("Cache-Control", "no-store")

    # --- the store -------------------------------------------------------------------------------------------

    def _store_of(self, app: Flask | None) -> SharedStore:
        if self._shared is not None:
            return self._shared
        url = self._url or (app or current_app).config.get("KEYSTEAD_STORE")
        if not isinstance(url, str) or not url:
            raise BadDeclaration(
                'give the sessions a store: KeysteadSessions(app, "redis://localhost:6379/0"), or set KEYSTEAD_STORE'
            )
        return synchronous_store(url)

    def _sessions(self, app: Flask | None = None) -> DataSessions:
        return self._store_of(app).bind(self._sessions_on)

    def _sessions_on(self, store: Store) -> DataSessions:
        return DataSessions(self.keyspace(store), *self._policies)


def _unavailable(app: Flask, error: KeysteadError) -> Any:
    """A 503 for an error that passes by itself; the error handlers of the application apply."""
    if not is_temporary(error):
        raise error
    _log.warning("a request was refused with 503: %s", error)
    return app.handle_http_exception(ServiceUnavailable(retry_after=RETRY_AFTER_S))


def _replace(response: Response, other: Response) -> None:
    """Make a response the same as another, in place: Flask sends this object."""
    close: Any = getattr(response.response, "close", None)
    if close is not None:
        close()
    response.direct_passthrough = False
    response.status = other.status
    response.headers.clear()
    response.headers.extend(other.headers)
    response.set_data(other.get_data())


def _current() -> SessionMixin:
    current: SessionMixin = session._get_current_object()  # type: ignore[attr-defined]  # it is a proxy
    return current
