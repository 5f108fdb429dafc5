"""From a URL to a store, through one table of schemes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl, MissingExtra
from keystead.stores.base import Store
from keystead.stores.durations import seconds


def connect(url: str) -> Store:
    """The store of this URL, to be opened with `async with`. Raises BadUrl or MissingExtra at once.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory://`, `redis://user:password@host:port/database`,
    `rediss://` (TLS), `redis+unix:///path/to/socket`, `redis+sentinel://host:port,host:port/name/database`,
    `redis+cluster://host:port,host:port`; `valkey` may stand for `redis` in each.
    Options go behind a question mark: `?timeout=2s&connect_timeout=500ms`.
    """
    scheme, separator, _ = url.partition("://")
    maker = SCHEMES.get(scheme)
    if not separator or maker is None:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise BadUrl(
            f"{scheme + '://' if separator else 'a store URL'} is not known; write one that begins with {known}"
        )
    return maker(url)


def _sqlite(url: str) -> Store:
    from keystead.stores.sqlite import SqliteStore

    parts = urlsplit(url)
    if parts.netloc:
        raise BadUrl(f"write sqlite:///{parts.netloc}{parts.path} with three slashes (four for an absolute path)")
    path = unquote(parts.path[1:])
    if not path or path.endswith("/"):
        raise BadUrl("sqlite:/// needs the path of a file, such as sqlite:///keystead.db")
    return SqliteStore(path, timeout=_options(parts.query, {"timeout": 5.0})["timeout"])


def _memory(url: str) -> Store:
    from keystead.stores.sqlite.store import MEMORY, SqliteStore

    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/"):
        raise BadUrl("memory:// takes no name; each connection has a store of its own")
    return SqliteStore(MEMORY, timeout=_options(parts.query, {"timeout": 5.0})["timeout"])


def _redis(url: str) -> Store:
    try:
        from keystead.stores.redis import redis_store
    except ModuleNotFoundError as error:
        if error.name != "hiredis":
            raise
        raise MissingExtra('a Redis or Valkey store needs its driver: pip install "keystead[redis]"') from None
    return redis_store(url)


SCHEMES: dict[str, Callable[[str], Store]] = {
    "sqlite": _sqlite,
    "memory": _memory,
    **{
        engine + topology: _redis
        for engine in ("redis", "rediss", "valkey", "valkeys")
        for topology in ("", "+unix", "+sentinel", "+cluster")
        if not (engine in ("rediss", "valkeys") and topology == "+unix")
    },
}


def _options(query: str, known: dict[str, float]) -> dict[str, float]:
    """The durations behind the question mark, in seconds; units are required."""
    options = dict(known)
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise BadUrl(f"the option {name!r} is not known here; there are: {', '.join(known)}")
        options[name] = seconds(name, text)
    return options
