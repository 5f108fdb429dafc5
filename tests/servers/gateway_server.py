"""The gateway as a process of its own: any store behind the Upstash REST API."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from keystead import connect
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens
from keystead.gateway.gateway_app import SchemaMode
from keystead.gateway.gateway_keys import Access
from keystead.gateway.gateway_kit import load_keyspaces
from tests.servers.redis_servers import redis
from tests.servers.server_process import Server, serve, temporary_folder

ROOT = Path(__file__).parents[2]
# In the environment, because the URL of a store may have a password.
STORE, KEYSPACE, MODE = "GATEWAY_STORE", "GATEWAY_KEYSPACE", "GATEWAY_MODE"
ACCESS: tuple[Access, ...] = ("read", "write", "scripts", "admin")
_START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.servers.gateway_server import main; main()"


class GatewayServer(Server):
    """A gateway, with a token of each access: `tokens["read"]`. `token` may write and run scripts.

    The tokens are in a database of their own, which survives a restart.
    """

    store_url: str
    behind: Server | None = None  # the server of the store, if it was started with the gateway
    keyspace = ""
    mode: SchemaMode = "off"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def upstash_url(self) -> str:
        """Of a store."""
        return f"upstash+http://:{self.token}@127.0.0.1:{self.port}"

    @property
    def tokens(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / "tokens.json").read_text())
        return found

    @property
    def token(self) -> str:
        return self.tokens["scripts"]

    def empty(self) -> None:
        """Delete everything, bypassing every store."""
        assert self.behind is not None
        self.behind.ask("FLUSHALL")

    def send(self, *command: Any, access: str = "scripts") -> Any:
        """One command: its JSON response."""
        headers = {"authorization": f"Bearer {self.tokens[access]}"}
        return httpx2.post(self.url, json=list(command), headers=headers, timeout=60).json()

    def batch(self, path: str, *commands: Any, access: str = "scripts") -> Any:
        """A pipeline or a transaction: its JSON response."""
        headers = {"authorization": f"Bearer {self.tokens[access]}"}
        return httpx2.post(self.url + path, json=commands, headers=headers, timeout=60).json()

    def _is_up_or_exited(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return bool(httpx2.get(self.url, timeout=60).status_code == 401)
        except httpx2.TransportError:
            return False

    def start(self) -> None:
        given = {STORE: self.store_url, KEYSPACE: self.keyspace, MODE: self.mode}
        os.environ |= given
        try:
            super().start()
        finally:
            for name in given:
                del os.environ[name]


@contextmanager
def gateway(store_url: str, keyspace: str = "", mode: SchemaMode = "off") -> Iterator[GatewayServer]:
    """A gateway to this store, which checks writes against a keyspace, such as `tests.gateway.shop_keys:ShopKeys`."""
    with temporary_folder() as folder:

        def make(port: int) -> GatewayServer:
            server = GatewayServer([sys.executable, "-c", _START, str(port), str(folder)], port, folder)
            server.store_url, server.keyspace, server.mode = store_url, keyspace, mode
            return server

        with serve(make, "address already in use") as server:
            yield server


@contextmanager
def gateway_on_redis() -> Iterator[GatewayServer]:
    """A gateway to a Redis server of its own, `behind`."""
    with redis() as behind, gateway(behind.url) as server:
        server.behind = behind
        yield server


def main() -> None:
    port, folder = sys.argv[1:]
    asyncio.run(_serve(int(port), Path(folder)))


async def _serve(port: int, folder: Path) -> None:
    import uvicorn

    async with connect(os.environ[STORE]) as store, connect(f"sqlite:///{folder}/tokens.db") as own:
        keys = GatewayKeys(store, gateway=own)
        tokens, file = GatewayTokens(keys), folder / "tokens.json"
        if not file.exists():
            issued = {access: (await tokens.create("test", access)).token for access in ACCESS}
            file.write_text(json.dumps(issued))
        keyspaces = load_keyspaces([name for name in (os.environ[KEYSPACE],) if name])
        app: Any = GatewayApp(store, keys, keyspaces=keyspaces, schema=os.environ[MODE])  # type: ignore[arg-type]
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", lifespan="off")).serve()
