"""Starts npm's `oidc-provider` as a process of its own, and stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from keystead.schema.lifetime import duration_ms
from keystead.testing.servers import MissingProgram, NotReady, free_port, stand_still, wait_until

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[3]
_STOP_S = 10.0


@dataclass(frozen=True)
class RegisteredClient:
    """A program that the provider knows."""

    client_id: str
    client_secret: str
    redirect_uris: tuple[str, ...]


class OidcProvider:
    """A provider process of ours. A restart gives it new keys, and it forgets everybody."""

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
            raise NotReady(f"the provider of port {self.port} does not run")
        return self._process.pid

    @property
    def said(self) -> str:
        """What it wrote to its log."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it and wait until it listens."""
        folder = node_folder()
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a program we looked up, with arguments of ours
                [str(folder / "bin" / "node"), str(_HERE / "provider.js"), json.dumps(self._settings)],
                cwd=folder,
                env={**os.environ, "NODE_ENV": "test", "NO_COLOR": "1"},
                stdin=subprocess.PIPE,  # it ends with us, even if we are killed: the pipe does
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(self._listens_or_ended, f"the provider of port {self.port} listens")
            if self._process.poll() is not None:
                raise NotReady(f"the provider of port {self.port} ended at once: {self.said[-2000:]}")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once; nothing happens if it does not run."""
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
        """Let it stand still: connections are taken, nothing is answered."""
        stand_still(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _listens_or_ended(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def oidc_provider(
    redirect_uris: Sequence[str],
    *,
    accounts: Mapping[str, Mapping[str, str]] | None = None,
    access_token_lifetime: str = "1h",  # noqa: S107 - how long it lives, not a token
    algorithm: Literal["RS256", "PS256", "ES256", "EdDSA", "Ed25519"] = "RS256",
    client_auth: Literal["basic", "post"] = "basic",
) -> Iterator[OidcProvider]:
    """A provider that is ready inside the block, and gone after it.

    `accounts` gives people a `name` and a `picture`; anybody else may log in, too, and is called as they log in.
    `algorithm` signs the ID tokens. Two clients are registered, with the same redirect URIs: the first is
    `provider.client_id`, the second is there to be mistaken for it.
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
        provider = _started(settings, clients, folder / "output.txt")
        try:
            yield provider
        finally:
            provider.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(settings: Mapping[str, object], clients: Sequence[RegisteredClient], log: Path) -> OidcProvider:
    for attempt in range(5):
        provider = OidcProvider(free_port(), settings, clients, log)
        try:
            provider.start()
        except NotReady:
            # Somebody else may have taken the port between our look and the provider's.
            if attempt == 4 or "EADDRINUSE" not in provider.said:
                raise
        else:
            return provider
    raise AssertionError("unreachable")


def node_folder() -> Path:
    """Where Node and the packages are; MissingProgram says how to get them.

    `KEYSTEAD_NODE` names the folder; without it, it is `.venv-node` in the checkout.
    """
    folder = Path(os.environ.get("KEYSTEAD_NODE") or _CHECKOUT / ".venv-node")
    if not (folder / "bin" / "node").exists() or not (folder / "node_modules" / "oidc-provider").is_dir():
        raise MissingProgram(
            f"{folder} does not hold Node and oidc-provider: run `scripts/node.sh` in a checkout of Keystead (`make "
            "test` does), and set KEYSTEAD_NODE to its .venv-node to use it from elsewhere"
        )
    return folder
