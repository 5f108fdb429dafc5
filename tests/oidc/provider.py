"""Starts npm's `oidc-provider` as a process of its own, and stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from keystead.schema.lifetime import duration_ms
from tests.servers import NotReady, free_port, node_with, suspend, wait_until

_HERE = Path(__file__).parent
_STOP_S = 10.0
_LISTENING = "listening\n"


@dataclass(frozen=True)
class RegisteredClient:
    """A program that the provider knows."""

    client_id: str
    client_secret: str
    redirect_uris: tuple[str, ...]


class OidcProvider:
    """A provider process. A restart gives it new keys and ends all logins."""

    def __init__(
        self, port: int, settings: Mapping[str, object], clients: Sequence[RegisteredClient], log: Path
    ) -> None:
        self.port = port
        self.issuer = f"http://127.0.0.1:{port}"
        self.clients = tuple(clients)
        self._settings = {**settings, "port": port, "issuer": self.issuer}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client_id(self) -> str:
        return self.clients[0].client_id

    @property
    def client_secret(self) -> str:
        return self.clients[0].client_secret

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NotReady(f"the provider on port {self.port} is not running")
        return self._process.pid

    @property
    def log_text(self) -> str:
        """Its log so far."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it and wait until it listens."""
        node, packages = node_with("oidc")
        before = self.log_text.count(_LISTENING)
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [node, str(_HERE / "provider.js"), json.dumps(self._settings)],
                cwd=packages,
                env={**os.environ, "NODE_ENV": "test", "NO_COLOR": "1"},
                stdin=subprocess.PIPE,  # it exits when this pipe closes, even if this process is killed
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: self._listens_or_exited(before), f"the provider on port {self.port} listens")
            if self._process.poll() is not None:
                raise NotReady(f"the provider on port {self.port} exited at once: {self.log_text[-2000:]}")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it. No error if it is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(_STOP_S)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None

    def restart(self) -> None:
        """Start it again on the same port, with new keys."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Suspend it: connections are accepted, but nothing is answered."""
        suspend(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _listens_or_exited(self, before: int) -> bool:
        """By its own word: a connection could be accepted by another program that took the port for a moment."""
        is_running = self._process is not None and self._process.poll() is None
        return not is_running or self.log_text.count(_LISTENING) > before


@contextmanager
def oidc_provider(
    redirect_uris: Sequence[str],
    *,
    accounts: Mapping[str, Mapping[str, str]] | None = None,
    access_token_lifetime: str = "1h",
    algorithm: Literal["RS256", "PS256", "ES256", "EdDSA", "Ed25519"] = "RS256",
    client_auth: Literal["basic", "post"] = "basic",
) -> Iterator[OidcProvider]:
    """A provider that is ready inside the block, and gone after it.

    `accounts` maps logins to a `name` and a `picture`; any other login works, too, and is its own name.
    `algorithm` signs the ID tokens. Two clients are registered, with the same redirect URIs: the first is
    `provider.client_id`, the second is there to be confused with it.
    """
    clients = [
        RegisteredClient(name, f"secret-of-{name}-in-tests-only", tuple(redirect_uris))
        for name in ("keystead", "another-client")
    ]
    settings = {
        "clients": [
            {
                "client_id": client.client_id,
                "client_secret": client.client_secret,
                "redirect_uris": list(client.redirect_uris),
                "token_endpoint_auth_method": f"client_secret_{client_auth}",
            }
            for client in clients
        ],
        "accounts": {login: dict(facts) for login, facts in (accounts or {}).items()},
        "accessTokenSeconds": duration_ms(access_token_lifetime) // 1000,
        "algorithm": algorithm,
    }
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    try:
        provider = _start(settings, clients, folder / "output.txt")
        try:
            yield provider
        finally:
            provider.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(settings: Mapping[str, object], clients: Sequence[RegisteredClient], log: Path) -> OidcProvider:
    for attempt in range(5):
        provider = OidcProvider(free_port(), settings, clients, log)
        try:
            provider.start()
        except NotReady:
            # Another process may have taken the port since it was found free.
            if attempt == 4 or "EADDRINUSE" not in provider.log_text:
                raise
        else:
            return provider
    raise AssertionError("unreachable")
