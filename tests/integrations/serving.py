"""Serves an application with a real server, and a browser with cookies as in RFC 6265bis."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests import forking
from tests.serving import environment, free_port, listens, wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Served:
    port: int
    output: Path
    process: forking.Command

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        """Browsers come by https; what ends TLS in front of the server passes the host on."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def said(self) -> str:
        return self.output.read_text()


@contextmanager
def serving(
    folder: Path,
    app: str,
    *,
    server: str = "granian",
    lifespan: str = "on",
    module: str = "tests.integrations.apps",
    **options: Any,
) -> Iterator[Served]:
    """The application of a module, with one worker."""
    port = free_port()
    output = folder / f"{app}-{port}.txt"
    flags = {
        "granian": ["--interface", "asgi" if lifespan == "on" else "asginl"],
        "uvicorn": ["--lifespan", lifespan],
    }[server]
    arguments = ["--factory", "--host", "127.0.0.1", "--port", str(port), "--log-level", "info", *flags]
    env = environment({"TEST_APP": app, "TEST_OPTIONS": json.dumps(options)})
    with output.open("wb") as stream, open(os.devnull) as nothing:
        process = forking.start_module(server, [*arguments, f"{module}:make"], ROOT, env, nothing, stream, stream)
    served = Served(port, output, process)
    try:
        wait_until(lambda: listens(port) or process.poll() is not None, f"{app} listens")
        assert process.poll() is None, served.said
        yield served
    finally:
        process.terminate()
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class Browser:
    """Sends and stores cookies, and sets the Origin header."""

    def __init__(self, served: Served) -> None:
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []  # of the last answer
        self._served = served
        self._client = httpx2.Client(base_url=served.url, timeout=300)
        self._csrf: str | None = None

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def copy(self) -> "Browser":
        """Another tab: the same cookies, now."""
        tab = Browser(self._served)
        tab.cookies, tab._csrf = dict(self.cookies), self._csrf
        return tab

    @property
    def token(self) -> str | None:
        return self.cookies.get("__Host-sid")

    def csrf(self) -> str:
        if self._csrf is None or self.cookies.get("__Host-csrf") != self._csrf:
            self._csrf = self.get("/csrf").json()["token"]
        return self._csrf

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.send("GET", path, headers=headers)

    def ask(self, path: str, headers: list[tuple[str, str]]) -> dict[str, Any]:
        """With these headers alone."""
        told: dict[str, Any] = self._client.get(path, headers=headers).json()
        self._client.cookies.clear()
        return told

    def post(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> httpx2.Response:
        headers = {"origin": self._served.origin, "x-csrf-token": self.csrf()}
        return self.send(method, path, headers=headers, json=body or {})

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self._client.request(method, path, headers={"cookie": cookies, **(headers or {})}, **body)
        self._client.cookies.clear()
        self.set_cookies = answer.headers.get_list("set-cookie")
        for text in self.set_cookies:
            self._keep(text)
        return answer

    def _keep(self, text: str) -> None:
        pair, *attributes = text.split("; ")
        name, _, value = pair.partition("=")
        given = dict(one.partition("=")[::2] for one in attributes)
        if name.startswith("__Host-"):  # or the browser drops the cookie
            assert "Secure" in given, text
            assert given.get("Path") == "/", text
            assert "Domain" not in given, text
        if given.get("Max-Age") == "0":
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value

    def login(self, user: str = "ann") -> dict[str, Any]:
        answer = self.post("/login", {"user": user})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def me(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/me").json()
        return found
