"""The application for two requests to Flask in every order of their steps: see `interleaved_requests`."""

from __future__ import annotations

import functools
from typing import Any

from flask import Flask, session

from keystead.integrations.flask import KeysteadSessions
from tests.integrations.interleaved_requests import InProcess, OverHttp, Site


class FlaskSite(Site):
    cookie_name, lost_status = "session", 503

    def __init__(self, url: str = "memory://", transport: InProcess | OverHttp | None = None) -> None:
        super().__init__(url, transport)
        self.app = app = Flask("site")
        app.testing = True
        sessions = KeysteadSessions(app, self.store)
        sessions.keyspace = functools.partial(sessions.keyspace, now_ms=self.clock)  # type: ignore[assignment]

        @app.get("/<path:action>")
        def act(action: str) -> Any:
            match action.split("/"):
                case ["sign-in"]:
                    session["_user_id"] = "ann"
                case ["save"]:
                    session["theme"] = "dark"
                case ["set", name]:
                    session[name] = 1
                case ["rotate"]:
                    sessions.regenerate()
                case ["refresh"]:
                    session["seen"] = session.get("seen", 0) + 1
                    sessions.regenerate()
                case ["read"]:
                    session.get("theme")
                    sessions.list_sessions("ann")
                case ["logout"]:
                    session.clear()
                case ["revoke-all"]:
                    sessions.end_sessions("ann")
                case ["names"]:
                    return {"is": sorted(name for name in session if name != "_user_id")}
                case ["count"]:
                    return {"is": len(sessions.list_sessions("ann"))}
            return {"is": session.get("_user_id")}
