"""Memcached."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.server_process import READY_S, Server, find_program, serve, temporary_folder


class MemcachedServer(Server):
    """Memcached.

    url             of a store with the default prefix
    empty()         deletes everything, bypassing every store
    exchange(text)  its reply to this text, on a connection of the test itself
    """

    user: str | None = None

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f"{self.user}:{self.password}@"
        return f"memcached://{secret}127.0.0.1:{self.port}"

    def exchange(self, text: str | bytes, end: bytes = b"\r\n") -> bytes:
        """Send the text; read until the reply ends with `end`."""
        with socket.create_connection(("127.0.0.1", self.port), READY_S) as connection:
            if self.password is not None:
                secret = f"{self.user} {self.password}".encode()
                connection.sendall(b"set keystead 0 0 %d\r\n%b\r\n" % (len(secret), secret))
                connection.recv(1024)
            connection.sendall((text.encode() if isinstance(text, str) else text) + b"\r\n")
            answer = b""
            while not answer.endswith(end) and (more := connection.recv(1 << 16)):
                answer += more
            return answer

    def empty(self) -> None:
        self.exchange("flush_all")

    def _is_up_or_exited(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return self.exchange("version").startswith((b"VERSION", b"CLIENT_ERROR"))
        except OSError:
            return False


@contextmanager
def memcached(*arguments: str, password: str | None = None) -> Iterator[MemcachedServer]:
    """The machine's own `memcached`; `arguments` are further options of its own.

    With a password, it lets in only the user `keystead`.
    """
    program = find_program("memcached", "apt-get install memcached")
    with temporary_folder() as folder:
        account = ("-u", "root") if os.geteuid() == 0 else ()
        secret: tuple[str, ...] = ()
        if password is not None:
            (folder / "users").write_text(f"keystead:{password}\n")
            secret = ("-Y", str(folder / "users"))

        def make(port: int) -> MemcachedServer:
            argv = [program, *("-l", "127.0.0.1", "-p", str(port), "-t", "2"), *account, *secret, *arguments]
            server = MemcachedServer(argv, port, folder, password=password)
            server.user = None if password is None else "keystead"
            return server

        with serve(make) as server:
            yield server
