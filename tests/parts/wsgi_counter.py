"""A WSGI application that counts requests, for gunicorn: its store is a global, and is used before the fork."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from keystead import Counter, Keyspace, connect, never


class Counts(Keyspace):
    n = Counter("sync:n:{id}", lifetime=never("a test"))


keys = Counts(connect(os.environ["COUNTER_STORE"]))
keys.n("loaded").increment().wait()


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    number = keys.n("requests").increment().wait()
    start_response("200 OK", [("content-type", "text/plain")])
    return [f"{os.getpid()} {number}".encode()]
