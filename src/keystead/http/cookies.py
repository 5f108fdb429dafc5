"""Cookies that hold secrets: strict attributes, the same ones when they are set and cleared; and the one parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from keystead.errors import BadValue

if TYPE_CHECKING:
    from starlette.datastructures import Headers

NAME_AND_VALUE_MAX_BYTES = 4096  # beyond that, browsers drop a cookie without a word

_VALUE = re.compile(r"[A-Za-z0-9._~-]*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Cookie:
    """A cookie for one host, which scripts cannot read.

    `secure`: for https. The name gets the prefix `__Host-`, so that browsers enforce Secure, no Domain and Path=/, and
    no other host of the same domain can set it. Without it, for development on plain http, it has neither prefix nor
    Secure.
    """

    base_name: str
    secure: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.base_name):
            raise BadValue(f"{self.base_name!r} is not a cookie name; use letters, digits, - and _")
        if self.base_name.startswith("__"):
            raise BadValue(f"{self.base_name!r}: browsers read a prefix in it; write the name alone, such as 'sid'")

    @property
    def name(self) -> str:
        return f"__Host-{self.base_name}" if self.secure else self.base_name

    def set(self, value: str, max_age_s: int | None = None) -> str:
        """The value of a Set-Cookie header. Without `max_age_s` it lives until the browser is closed."""
        if not _VALUE.fullmatch(value):
            raise BadValue(f"the value of {self.name} has a character that a cookie does not keep")
        if len(self.name) + len(value) > NAME_AND_VALUE_MAX_BYTES:
            raise BadValue(f"{self.name} and its value have more than {NAME_AND_VALUE_MAX_BYTES} bytes")
        age = "" if max_age_s is None else f"; Max-Age={max_age_s}"
        return f"{self.name}={value}{age}{self._attributes}"

    def clear(self) -> str:
        """The value of a Set-Cookie header that clears it, with the same attributes, or the browser would keep it."""
        return f"{self.name}=; Max-Age=0{self._attributes}"

    def find(self, headers: Headers) -> str | None:
        """Its value in a request; None if it is missing, empty, or there are two that differ."""
        return self.read("; ".join(headers.getlist("cookie"))) or None

    def read(self, header: str) -> str | None:
        """Its value in a Cookie header, which is decoded as latin-1; None: it is not there, or ambiguous.

        Of several without the prefix, the first, which is the most specific.
        """
        found = self._values_in(header)
        if not found or (len(found) > 1 and self.is_ambiguous(header)):
            return None
        return found[0]

    def is_ambiguous(self, header: str) -> bool:
        """Whether there are two with the prefix that differ. A browser has one at most: somebody got past that."""
        return self.secure and len(set(self._values_in(header))) > 1

    def _values_in(self, header: str) -> list[str]:
        return [value.strip(" \t").strip('"') for value in _pairs_named(self.name).findall(header)]

    @property
    def _attributes(self) -> str:
        return f"; Path=/; HttpOnly{'; Secure' if self.secure else ''}; SameSite=Lax"


@lru_cache(maxsize=64)
def _pairs_named(name: str) -> re.Pattern[str]:
    """Only HTTP's white space may stand before a name: `\\xa0__Host-sid` has no prefix for a browser, so other hosts of
    the domain can set it."""
    return re.compile(rf"(?:^|;)[ \t]*{re.escape(name)}=([^;]*)")
