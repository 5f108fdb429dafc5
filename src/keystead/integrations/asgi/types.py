"""ASGI types besides `starlette.types`, and what the middlewares read from a scope."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from starlette.types import Scope

from keystead.errors import BadDeclaration

App: TypeAlias = Callable[..., Awaitable[None]]  # frameworks differ in their parameter types
Header: TypeAlias = tuple[bytes, bytes]


def cookies_in(headers: Iterable[Header]) -> bytes:
    """The Cookie header; HTTP/2 may split it."""
    cookies = b""
    for name, value in headers:
        if name == b"cookie":
            cookies = cookies + b"; " + value if cookies else value
    return cookies


def event_of(name: str, scope: Scope) -> dict[str, object]:
    """The fields of a security event, for the log."""
    client = scope.get("client")
    return {"event": name, "client": client[0] if client else None}


def path_prefixes(option: str, paths: Sequence[str]) -> tuple[str, ...]:
    if isinstance(paths, str) or not all(path.startswith("/") for path in paths):
        raise BadDeclaration(f'{option} takes path prefixes, as in {option}=["/static/"], not {paths!r}')
    return tuple(paths)
