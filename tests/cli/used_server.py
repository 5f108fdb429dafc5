"""A real server whose six kits were used, so that its store holds what the server writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2

from keystead.parts.oauth import challenge_of, new_verifier
from tests import forking
from tests.serving import Keystead, environment, keystead_serving

SEAL_KEYS = "2026:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
SETTINGS = {
    "KEYSTEAD_SEAL_KEYS": SEAL_KEYS,
    "KEYSTEAD_SHARING__ALLOWED_HOSTS": '["example.com"]',
    "KEYSTEAD_WIDGETS__PRIVATE_WEBHOOKS": "true",
    "KEYSTEAD_TEAMWORK__SLACK_WEBHOOK_URL": "https://127.0.0.1:1/slack",  # nobody answers: the message waits
}
_NOBODY = "http://127.0.0.1:1/hook"
_APP = "http://127.0.0.1:49152/callback"


@contextmanager
def used_server(folder: Path, url: str) -> Iterator[Keystead]:
    """The server, after each of its kits was used. Webhooks and Slack messages stay queued."""
    with keystead_serving(folder, url, **SETTINGS) as server, httpx2.Client(base_url=server.url, timeout=300) as http:
        _use_widgets(http)
        _use_sharing(http)
        _log_in(http)
        _use_membership(http)
        _use_session_data(http, folder, url)
        _use_teamwork(http)
        yield server


def _use_widgets(http: httpx2.Client) -> None:
    def ask(service: str, **said: Any) -> dict[str, Any]:
        return _json(http.post(f"/api/{service}", json=said))

    page = {"url": "https://example.com/", "token": "my-own-token", "webhookUrl": _NOBODY}
    ids = {
        service: ask(service, action="create", **page)["data"]["id"] for service in ("visit", "like", "ranking", "bbs")
    }
    ask("visit", action="increment", id=ids["visit"])
    ask("like", action="toggle", id=ids["like"])
    ask("ranking", action="submit", id=ids["ranking"], name="Ada", score=7)
    ask("bbs", action="post", id=ids["bbs"], author="Ada", message="first")


def _use_sharing(http: httpx2.Client) -> None:
    uploaded = _json(http.post("/api/receive/upload?name=a.txt&maxDownloads=3", content=b"shared"))
    resolved = http.get("/api/receive/resolve", params={"t": uploaded["shortToken"], "redirect": 1})
    assert resolved.status_code == 302, resolved.text
    assert http.get(resolved.headers["location"]).content == b"shared"
    elsewhere = _json(http.post("/api/receive/token", json={"url": "https://example.com/b.pdf", "password": "secret"}))
    wrong = http.post("/api/receive/resolve", json={"t": elsewhere["shortToken"], "password": "wrong"})
    assert 400 <= wrong.status_code < 500, wrong.text
    ended = _json(http.post("/api/receive/upload?name=b.txt", content=b"ended"))
    _json(http.post("/api/receive/delete", json={"token": ended["token"]}))


def _log_in(http: httpx2.Client) -> None:
    """Log in with the demo provider on two devices, and log out on one."""
    for leaves in (True, False):
        with httpx2.Client(base_url=http.base_url, timeout=300) as browser:
            start = browser.get("/api/auth/demo/start?returnTo=/login", headers={"accept": "text/html"})
            asked = urlsplit(start.headers["location"])
            form = {**dict(parse_qsl(asked.query)), "name": "Ada"}
            agreed = browser.post(asked.path, data=form, headers={"origin": str(http.base_url).rstrip("/")})
            back = urlsplit(agreed.headers["location"])
            assert browser.get(f"{back.path}?{back.query}").status_code == 200
            assert browser.get("/api/auth/me").json()["user"]["name"] == "Ada"
            if leaves:
                assert browser.post("/api/auth/logout", headers={"origin": str(http.base_url).rstrip("/")}).is_success
    assert http.get("/api/auth/demo/start?format=json").is_success  # a login that is never finished


def _use_membership(http: httpx2.Client) -> None:
    verifier = new_verifier()
    asked = {
        "response_type": "code",
        "client_id": "demo-patreon",
        "redirect_uri": _APP,
        "scope": "identity",
        "state": "the-state",
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "person": "demo-ada",
    }
    agreed = http.post("/demo/authorize", data=asked)
    code = parse_qs(urlsplit(agreed.headers["location"]).query)["code"][0]
    told = _json(http.post("/api/auth/callback", json={"code": code, "redirect_uri": _APP, "code_verifier": verifier}))
    bearer = {"authorization": f"Bearer {told['session_token']}"}
    _json(http.post("/api/session/validate", json={"session_token": told["session_token"]}))
    pair = _json(http.post("/api/auth/token", headers=bearer))
    _json(http.post("/api/auth/refresh", json={"refreshToken": pair["refreshToken"]}))
    _json(http.get("/api/quota/status", headers=bearer))


def _use_session_data(http: httpx2.Client, folder: Path, url: str) -> None:
    issued = forking.run(
        ("apikeys", "issue", "42", "a first try"), folder, environment({"KEYSTEAD_STORE": url, **SETTINGS})
    )
    key = {"ApiKey": issued.stdout.strip()}
    for said in ({"SavePerUser": True}, {}):
        answer = http.post("/api/Sessions/Set", json={**key, "SessionKey": "Theme", "SessionValue": "Dark", **said})
        assert answer.is_success, answer.text


def _use_teamwork(http: httpx2.Client) -> None:
    signed_in = _json(http.post("/api/teamwork/demo/sign-in", json={"person": 900000001}))
    bearer = {"authorization": f"Bearer {signed_in['token']}"}
    _json(http.post("/api/teamwork/demo/events", headers=bearer, json={"what": "assigned"}))
    for path in ("/api/me", "/api/notifications/unread-counts", "/api/deadlines", "/api/dashboard"):
        assert http.get(path, headers=bearer).status_code < 500
    _json(http.post("/api/tokens/revoke", headers=bearer))


def _json(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.is_success, f"{answer.request.url}: {answer.status_code} {answer.text}"
    found: dict[str, Any] = answer.json()
    return found
