"""Store URLs: one table of schemes."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from keystead.errors import BadUrl, MissingExtra
from keystead.extras import from_extra
from keystead.stores import durations
from keystead.stores.durations import seconds
from keystead.stores.store_contract import Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "keystead.stores"  # the entry point group by which other packages add a scheme


def connect(url: str) -> Store:
    """The store of this URL, to be opened with `async with`. Raises BadUrl or MissingExtra.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory://`, `redis://user:password@host:port/database`,
    `rediss://` (TLS), `redis+unix:///path/to/socket`, `redis+sentinel://host:port,host:port/name/database`,
    `redis+cluster://host:port,host:port`; `valkey` may replace `redis` in each;
    `postgresql://user:password@host:port/database`, `mysql://…` and `mariadb://…` alike;
    `memcached://host:port,host:port/prefix`; `upstash+https://:token@host`, `upstash+env://`,
    `cloudflare-kv://account/namespace`.
    Options are query parameters: `?timeout=2s&connect_timeout=500ms`. Other packages may add schemes, with an entry
    point in the group `keystead.stores`.
    """
    if not isinstance(url, str):
        raise BadUrl(f"a store URL must be text, such as sqlite:///app.db, not {type(url).__name__}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        # The text may contain a password, so it is only shown if it looks like a file name.
        file = url if re.fullmatch(r"[\w.-]+", url) else "app.db"
        raise BadUrl(f"a store URL needs a scheme: write sqlite:///{file}, memory:// or redis://host:6379/0")
    maker = SCHEMES.get(scheme.lower()) or _from_entry_point(scheme.lower())
    if maker is None:
        near = get_close_matches(scheme.lower(), (*SCHEMES, *_entry_points().names), 1)
        advice = f"is it {near[0]}://?" if near else "write sqlite:///app.db, memory:// or redis://host:6379/0."
        raise BadUrl(f"{scheme}:// is not the scheme of a store; {advice} All of them: keystead guide stores")

    def make() -> Store:  # not a partial, which would show the password of the URL
        return maker(f"{scheme.lower()}://{rest}")

    store = make()
    store.remake = make
    return store


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # here: few programs need it, and it takes a tenth of `import keystead`

    return entry_points(group=GROUP)


def _from_entry_point(scheme: str) -> Callable[[str], Store] | None:
    """The function of another package that makes stores of this scheme; None if there is none."""
    found = tuple(_entry_points().select(name=scheme))
    if not found:
        return None
    packages = sorted(point.dist.name if point.dist else point.value for point in found)
    if len(found) > 1:
        raise BadUrl(f"{scheme}:// is claimed by several packages, {' and '.join(packages)}; uninstall all but one")
    [point], [package] = found, packages
    try:
        make = point.load()
    except Exception as error:  # third-party code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise MissingExtra(
            f"the package {package} provides {scheme}://, but cannot be imported: {reason}; reinstall it"
        ) from error

    def make_store(url: str) -> Store:
        store = make(url)
        if not isinstance(store, Store):
            raise BadUrl(f"{package} returned a {type(store).__name__} for {scheme}://, not a store; tell its authors")
        return store

    return make_store


def _sqlite(url: str) -> Store:
    from keystead.stores.sqlite import SqliteStore

    location, _, query = url.removeprefix("sqlite://").partition("?")
    if not location.startswith("/"):
        raise BadUrl(f"write sqlite:///{location} with three slashes (four for an absolute path)")
    path = unquote(location[1:])
    if not path or path.endswith("/"):
        raise BadUrl("sqlite:/// needs the path of a file, such as sqlite:///keystead.db")
    return SqliteStore(path, timeout=_options(query, {"timeout": durations.TIMEOUT_S})["timeout"])


def _memory(url: str) -> Store:
    from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore

    name, _, query = url.removeprefix("memory://").partition("?")
    if name.strip("/"):
        raise BadUrl("memory:// takes no name; each connection has a separate store")
    return SqliteStore(MEMORY, timeout=_options(query, {"timeout": durations.TIMEOUT_S})["timeout"])


def _redis(url: str) -> Store:
    with from_extra("redis", "a Redis or Valkey store"):
        from keystead.stores.redis import store_from_url

        return store_from_url(url)  # here: it imports the driver


def _postgres(url: str) -> Store:
    with from_extra("postgres", "a PostgreSQL store"):
        from keystead.stores.postgres import PostgresStore
    return PostgresStore.of(url)


def _mysql(url: str) -> Store:
    with from_extra("mysql", "a MySQL or MariaDB store"):
        from keystead.stores.mysql import MysqlStore
    return MysqlStore.of(url)


def _upstash(url: str) -> Store:
    from keystead.stores.upstash import UpstashStore

    return UpstashStore.of(url)


def _memcached(url: str) -> Store:
    from keystead.stores.memcached import MemcachedStore

    return MemcachedStore.of(url)


def _cloudflare_kv(url: str) -> Store:
    with from_extra("cloudflare", "a Cloudflare KV store"):
        from keystead.stores.cloudflare_kv import CloudflareKvStore
    return CloudflareKvStore.of(url)


SCHEMES: dict[str, Callable[[str], Store]] = {
    "sqlite": _sqlite,
    "memory": _memory,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "memcached": _memcached,
    **dict.fromkeys(("upstash+https", "upstash+http", "upstash+env"), _upstash),
    "cloudflare-kv": _cloudflare_kv,
    **{
        engine + topology: _redis
        for engine in ("redis", "rediss", "valkey", "valkeys")
        for topology in ("", "+unix", "+sentinel", "+cluster")
        if not (engine in ("rediss", "valkeys") and topology == "+unix")
    },
}


def _options(query: str, known: dict[str, float]) -> dict[str, float]:
    """The durations in the query, in seconds; units are required."""
    options = dict(known)
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise BadUrl(f"unknown option {name!r}; the options are: {', '.join(known)}")
        options[name] = seconds(name, text)
    return options
