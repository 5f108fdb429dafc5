"""An independent server of the Upstash REST API: npm's `@humanwhocodes/upstash-redis-server`, on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.servers.node_packages import node_with
from tests.servers.redis_servers import redis
from tests.servers.server_process import Server, serve, temporary_folder

_SCRIPT = Path(__file__).parents[1] / "stores" / "upstash" / "npm_server" / "server.mjs"
_TOKEN = "a-token"


class NpmUpstashServer(Server):
    """`behind`: its Redis server."""

    behind: Server

    @property
    def url(self) -> str:
        return f"upstash+http://:{_TOKEN}@127.0.0.1:{self.port}"

    def empty(self) -> None:
        self.behind.ask("FLUSHALL")

    def _is_up_or_exited(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return bool(httpx2.get(f"http://127.0.0.1:{self.port}", timeout=60).status_code == 401)
        except httpx2.TransportError:
            return False


@contextmanager
def npm_upstash() -> Iterator[NpmUpstashServer]:
    node, packages = node_with("npm_server")
    with redis() as behind, temporary_folder() as folder:
        (folder / "node_modules").symlink_to(packages / "node_modules")

        def make(port: int) -> NpmUpstashServer:
            script = ("--input-type=module", "--eval", _SCRIPT.read_text())
            server = NpmUpstashServer([node, *script, _TOKEN, behind.url, str(port)], port, folder)
            server.behind = behind
            return server

        with serve(make, "EADDRINUSE") as server:
            yield server
