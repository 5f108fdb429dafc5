"""Two requests to Django in every order of their steps: `python -m tests.integrations.django_interleavings URL [WHAT]`.

URL is that of a store, see `Site`. Prints the number of orders of each pairing, as JSON. WHAT is `http`, for some
pairings by requests to a real server, or `bots` or `cart`. It runs in a process of its own, because Django has one
configuration for a process.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from django.conf import settings
from django.http import HttpRequest, JsonResponse

from keystead.integrations import loop_stores
from tests.integrations.interleaved_requests import (
    ENDS,
    FEWER,
    SWITCHES,
    WORK,
    InProcess,
    OverHttp,
    Site,
    check_bots,
    check_cart,
    check_lost_updates,
    check_over_http,
    check_pairing,
    check_tabs_at_sign_in,
)

URL = "memory://interleavings"
USER = "_auth_user_id"

settings.configure(
    ALLOWED_HOSTS=["*"],
    DEFAULT_CHARSET="utf-8",
    KEYSTEAD={"STORE": URL},
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    SESSION_COOKIE_AGE=30 * 86_400,
    SESSION_ENGINE="keystead.integrations.django.sessions",
    USE_TZ=True,
)

import django  # noqa: E402
from django.urls import path  # noqa: E402

django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402

from keystead.integrations.django import session_parts  # noqa: E402
from keystead.integrations.django.sessions import end_sessions, list_sessions  # noqa: E402


def act(request: HttpRequest, action: str) -> JsonResponse:
    session: Any = request.session
    match action.split("/"):
        case ["sign-in"]:
            session[USER] = "ann"
        case ["save"]:
            session["theme"] = "dark"
        case ["set", name]:
            session[name] = 1
        case ["rotate"]:
            session.cycle_key()
        case ["refresh"]:
            session["seen"] = session.get("seen", 0) + 1
            session.cycle_key()
        case ["read"]:
            session.get("theme")
            list_sessions("ann")
        case ["logout"]:
            session.flush()
        case ["revoke-all"]:
            end_sessions("ann")
        case ["names"]:
            return JsonResponse({"is": sorted(name for name in session.keys() if name != USER)})  # noqa: SIM118
        case ["count"]:
            return JsonResponse({"is": len(list_sessions("ann"))})
    return JsonResponse({"is": session.get(USER)})


urlpatterns = [path("<path:action>", act)]


class DjangoSite(Site):
    cookie_name, lost_status = "sessionid", 400

    def __init__(self, url: str, transport: InProcess | OverHttp | None = None) -> None:
        super().__init__(url, transport)
        loop_stores._synchronous[URL] = loop_stores.SharedStore(self.store)
        keyspace = session_parts._keyspace("django", *session_parts._policies())
        session_parts.session_keyspace = lambda: functools.partial(keyspace, now_ms=self.clock)  # type: ignore[assignment,return-value]
        self.app = get_wsgi_application()


def main(url: str, *options: str) -> dict[str, int]:
    def make() -> Site:
        return DjangoSite(url)

    match options:
        case ["http"]:
            return {"http": check_over_http(functools.partial(DjangoSite, url))}
        case ["bots"]:
            return {"keys": check_bots(make)}
        case ["cart"]:
            return dict.fromkeys(check_cart(make), 1)
    most = SWITCHES if url == "memory://" else FEWER
    report = {f"{work} x {end}": check_pairing(make, work, end, most) for work in WORK for end in ENDS}
    return report | {
        "lost updates": check_lost_updates(make, most),
        "two tabs at sign-in": check_tabs_at_sign_in(make, most),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
