"""Gateways to stores of every kind, and the clients that talk to them."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store, connect
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens
from keystead.gateway.gateway_keys import Access
from tests import servers
from tests.real_servers import mariadb_server, postgres_server, redis_server, valkey_cluster, valkey_server

__all__ = ["mariadb_server", "postgres_server", "redis_server", "valkey_cluster", "valkey_server"]

SCRIPTS = Path(__file__).parent / "upstash_clients"
EVERY = ("memory", "sqlite", "postgres", "mariadb", "redis", "valkey", "cluster")


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test with a gateway to each of these stores: on memory, or else a file, and on Redis; the rest in the
    matrix."""
    rare = {*names} - {"memory", "sqlite", "redis"} | ({"sqlite"} if "memory" in names else set())
    stores = [pytest.param(name, marks=[pytest.mark.matrix] if name in rare else []) for name in names]
    return pytest.mark.parametrize("gateway", stores, indirect=True)


@pytest.fixture(scope="session")
def gateways(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], servers.GatewayServer]]:
    """The gateway to a store, by the name of the store. Each is started once."""
    with ExitStack() as ends:
        started: dict[str, servers.GatewayServer] = {}

        def gateway_to(name: str) -> servers.GatewayServer:
            if name not in started:
                match name:
                    case "memory":
                        url = "memory://"
                    case "sqlite":
                        url = f"sqlite:///{tmp_path_factory.mktemp('gateway')}/kept.db"
                    case "cluster":
                        url = request.getfixturevalue("valkey_cluster").url
                    case _:
                        url = request.getfixturevalue(f"{name}_server").url
                started[name] = ends.enter_context(servers.gateway(url))
            return started[name]

        yield gateway_to


@pytest.fixture
def gateway(request: pytest.FixtureRequest, gateways: Callable[[str], servers.GatewayServer]) -> servers.GatewayServer:
    """A gateway to an empty store."""
    found = gateways(getattr(request, "param", "memory"))
    keys = found.send("KEYS", "*")["result"]
    if keys:
        found.send("DEL", *keys)
    return found


def run_script(script: str, gateway: servers.GatewayServer, access: str = "scripts") -> str:
    """What a JavaScript module prints, with the packages of `upstash_clients`."""
    node, packages = servers.node_with("upstash_clients")
    done = subprocess.run(
        [node, "--input-type=module", "-"],
        input=script,
        cwd=packages,
        env={
            **os.environ,
            "KV_REST_API_URL": gateway.url,
            "KV_REST_API_TOKEN": gateway.tokens[access],
            "UPSTASH_DISABLE_TELEMETRY": "",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_file(name: str, gateway: servers.GatewayServer, access: str = "scripts") -> Any:
    """The JSON that one of our scripts prints."""
    return json.loads(run_script((SCRIPTS / name).read_text(), gateway, access))


def unavailable(name: str) -> str:
    """The error of a command that a gateway does not serve."""
    return f"ERR Command is not available: '{name}'. See `keystead guide gateway` for details"


class Client:
    """Requests to a gateway in this process, with one token after the other."""

    def __init__(self, app: GatewayApp, tokens: GatewayTokens, store: Store) -> None:
        self.app = app
        self.tokens = tokens
        self.store = store
        self.token = ""
        self._http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://gateway")

    async def login(self, access: Access = "write", **limits: Any) -> str:
        """Use a new token; its id is returned."""
        issued = await self.tokens.create("a test", access, **limits)
        self.token = issued.token
        return issued.id

    async def request(self, method: str, path: str, headers: dict[str, str] | None = None, **given: Any) -> Any:
        sent = {"authorization": f"Bearer {self.token}"} | (headers or {})
        return await self._http.request(method, path, headers=sent, **given)

    async def send(self, *command: Any) -> Any:
        """One command: the result, or the text of the error."""
        answer = (await self.request("POST", "/", json=list(command))).json()
        return answer["result"] if "result" in answer else answer["error"]

    async def batch(self, path: str, *commands: Any) -> Any:
        return (await self.request("POST", path, json=commands)).json()

    async def close(self) -> None:
        await self._http.aclose()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client with a token that may write, of a gateway to a store in memory."""
    async with connect("memory://") as store:
        keys = GatewayKeys(store)
        made = Client(GatewayApp(store, keys), GatewayTokens(keys), store)
        await made.login("write")
        yield made
        await made.close()
