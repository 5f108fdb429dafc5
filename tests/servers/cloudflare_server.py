"""Cloudflare Workers KV: Cloudflare's own runtime with a real namespace, behind the shape of the REST API."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.node_packages import node_with
from tests.servers.server_process import READY_S, Server, serve, temporary_folder

_HERE = Path(__file__).parent / "cloudflare"
_MEMORY = Path("/dev/shm")
TOKEN, READ_TOKEN = "token-of-tests-only", "read-token-of-tests-only"


class CloudflareServer(Server):
    """Workers KV, with the limits of Cloudflare.

    url         of a store that may write to a key as often as it likes, as this server lets it by default
    control()   changes its faults and delays, and returns its counts
    empty()     deletes everything, and ends all faults and delays
    put()       writes as a Worker would, without a store
    """

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/client/v4"

    @property
    def url(self) -> str:
        return self.url_with("write_interval=1ms")

    def url_with(self, *options: str, token: str = TOKEN, namespace: str = "keys") -> str:
        return f"cloudflare-kv://:{token}@account/{namespace}?{'&'.join((f'api={self.api}', *options))}"

    def control(self, **settings: Any) -> dict[str, Any]:
        data = json.dumps(settings).encode() if settings else None
        found: dict[str, Any] = json.loads(self.fetch("/control", data))
        return found

    def fetch(self, path: str, data: bytes | None = None) -> bytes:
        """GET, or POST with data, on a connection of the test itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, READY_S) as answer:
            body: bytes = answer.read()
            return body

    def empty(self) -> None:
        self.control(empty=True)

    def put(self, key: str, value: bytes, **options: Any) -> None:
        self.control(put={"key": key, "base64": base64.b64encode(value).decode(), "options": options})

    @property
    def requests(self) -> Mapping[str, int]:
        """How many requests of each kind it got since it was emptied."""
        found: dict[str, int] = self.control()["requests"]
        return found

    @property
    def billed(self) -> Mapping[str, int]:
        """How many reads, writes, deletes and lists Cloudflare would have billed since it was emptied."""
        found: dict[str, int] = self.control()["billed"]
        return found

    _input = subprocess.PIPE

    def start(self) -> None:
        self._before = self.log_text.count("listening\n")
        super().start()

    def _prefix(self) -> list[str]:
        return []  # it ends with its input, and takes the runtime along, which a signal to it would not

    def kill(self) -> None:
        """End it with its runtime, a process of its own."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # it is killed below
                self._process.wait(READY_S)
        super().kill()

    def _is_up_or_exited(self) -> bool:
        """By its own word: a connection could be accepted by another program that took the port for a moment."""
        is_running = self._process is not None and self._process.poll() is None
        return not is_running or self.log_text.count("listening\n") > self._before


@contextmanager
def cloudflare(worker: Path | None = None) -> Iterator[CloudflareServer]:
    """`worker` is a Worker with the same namespace as its binding MEMBERSHIP, served under `/worker/`."""
    node, packages = node_with("cloudflare")
    # In memory where that is possible: each value is a file, which a disk writes slowly.
    with temporary_folder(_MEMORY if _MEMORY.is_dir() else None) as folder:
        (folder / "node_modules").symlink_to(packages / "node_modules")

        def make(port: int) -> CloudflareServer:
            settings = {"port": port, "token": TOKEN, "readToken": READ_TOKEN, "folder": str(folder)}
            if worker is not None:
                settings["worker"] = str(worker)
            return CloudflareServer([node, str(_HERE / "serve.js"), json.dumps(settings)], port, folder)

        with serve(make, "in use|EADDRINUSE") as server:
            yield server
