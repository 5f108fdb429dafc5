"""A desktop program whose users are patrons: it signs in through the browser and shows plan and quota.

    python desktop_app.py sign-in
    python desktop_app.py status
    python desktop_app.py sign-out

It needs only the standard library. Sign-in is OAuth with PKCE and a redirect to a port of this machine (RFC 8252), so
the program contains no secret. The session token is in a file that only its owner can read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import sys
import webbrowser
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

SERVER = os.environ.get("APP_SERVER", "http://127.0.0.1:8700")
AUTHORIZE = os.environ.get("APP_AUTHORIZE", f"{SERVER}/demo/authorize")  # Patreon's page in production
CLIENT = os.environ.get("APP_CLIENT", "demo-patreon")
TOKEN_FILE = Path(os.environ.get("APP_TOKEN_FILE", Path.home() / ".desktop-app-token"))
SIGN_IN_S = 300


class Failed(Exception):
    """A sentence for the user."""


class NotSignedIn(Failed):
    pass


def call(method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> dict[str, Any]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = Request(SERVER + path, data, headers, method=method)  # noqa: S310 - the user's own server
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        raise Failed(json.load(error).get("error", str(error))) from None
    except URLError as error:
        raise Failed(f"{SERVER} does not answer ({error.reason}); is it running?") from None


class Redirect(HTTPServer):
    """Waits for the browser to come back with the code of a sign-in."""

    timeout = SIGN_IN_S
    code = error = ""

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.state = state
        self.address = f"http://127.0.0.1:{self.server_port}/callback"


class Page(BaseHTTPRequestHandler):
    server: Redirect

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        # Another page of this browser may call this port, too: only the answer to our own request counts.
        if not secrets.compare_digest(asked.get("state", [""])[0], self.server.state):
            self.send_error(400, "This is not the sign-in that was started here")
            return
        self.server.code, self.server.error = asked.get("code", [""])[0], asked.get("error", [""])[0]
        text = b"You can close this page and go back to the program."
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the path has the code."""


def sign_in() -> str:
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with Redirect(state) as redirect:
        asked = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": redirect.address,
            "scope": "identity",
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        print("Your browser opens. Sign in there; this program waits.")
        webbrowser.open(f"{AUTHORIZE}?{urlencode(asked)}")
        while not redirect.code and not redirect.error:
            redirect.handle_request()
        if redirect.error:
            raise Failed(f"You were not signed in: {redirect.error}")
        sent = {"code": redirect.code, "redirect_uri": redirect.address, "code_verifier": verifier}
        answer = call("POST", "/api/auth/callback", sent)
    descriptor = os.open(TOKEN_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(answer["session_token"])
    return f"Signed in. {status()}"


def read_token() -> str:
    try:
        return TOKEN_FILE.read_text().strip()
    except FileNotFoundError:
        raise NotSignedIn("You are not signed in.") from None


def status() -> str:
    quota = call("GET", "/api/quota/status", token=read_token())
    usage = quota["monthly_usage"]
    return f"Plan {quota['plan']}: used {usage['tokens_used']:,} of {usage['tokens_limit']:,} tokens this month."


def sign_out() -> str:
    call("POST", "/api/auth/logout", {}, read_token())
    TOKEN_FILE.unlink(missing_ok=True)
    return "Signed out."


def main() -> int:
    parser = argparse.ArgumentParser(description="A desktop program whose users are patrons.")
    parser.add_argument("command", choices=["sign-in", "status", "sign-out"])
    command = {"sign-in": sign_in, "status": status, "sign-out": sign_out}[parser.parse_args().command]
    try:
        print(command())
    except Failed as failed:
        hint = " Run: python desktop_app.py sign-in" if isinstance(failed, NotSignedIn) else ""
        print(f"{failed}{hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
