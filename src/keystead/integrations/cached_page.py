"""Pages that are the same for everybody, as `cached_view` of Django and Flask stores them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

from pydantic import BaseModel

from keystead.errors import BadDeclaration

_PERSONAL: Final = frozenset({"*", "authorization", "cookie"})
_NOT_SHARED: Final = frozenset({"no-cache", "no-store", "private"})


class CachedPage(BaseModel):
    """A response that is the same for everybody, as it is stored: `Cached("page:{path<=200}", CachedPage, …)`."""

    headers: list[tuple[str, str]]
    text: str = ""
    base64: str = ""

    @classmethod
    def of(cls, headers: Iterable[tuple[str, str]], body: bytes) -> CachedPage:
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        try:
            return cls(headers=kept, text=body.decode())
        except UnicodeDecodeError:
            return cls(headers=kept, base64=b64encode(body).decode())

    @property
    def body(self) -> bytes:
        return b64decode(self.base64) if self.base64 else self.text.encode()


class Variants:
    """The request headers that pages depend on: `vary=["Accept"]` of `cached_view`."""

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str):
            raise BadDeclaration(f'vary= is a list of request headers, as in vary=["{names}"]')
        self.names: Final = tuple(name.lower() for name in names)
        for name in self.names:
            if name in _PERSONAL:
                raise BadDeclaration(f"a page that varies by {name} is not for everybody; do not cache it")

    def key(self, address: str, parts: Iterable[str], headers: Iterable[str | None]) -> str:
        """The key of a page. `parts`: what else it depends on; `headers`: the values of `names` in the request."""
        values = ["" if value is None else quote(value, safe="/;=,*.+ ") for value in headers]
        return "|".join([*parts, *values, address])

    def may_share(self, headers: Iterable[tuple[str, str]]) -> bool:
        """Whether a response with these headers is the same for all requests with the same key."""
        for name, value in headers:
            tokens = {token.partition("=")[0].strip() for token in value.lower().split(",")}
            match name.lower():
                case "set-cookie":
                    return False
                case "cache-control" if tokens & _NOT_SHARED:
                    return False
                case "vary" if not tokens - {""} <= set(self.names):
                    return False
        return True
