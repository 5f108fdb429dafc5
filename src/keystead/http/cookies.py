"""Cookies that hold secrets: strict attributes for setting and clearing, and one parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from keystead.errors import BadValue

if TYPE_CHECKING:
    from starlette.datastructures import Headers

NAME_AND_VALUE_MAX_BYTES = 4096  # browsers silently drop larger cookies

_VALUE = re.compile(r"[A-Za-z0-9._~-]*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Cookie:
    """An HttpOnly cookie for one host.

    `secure`: for https. The name gets the prefix `__Host-`: browsers then enforce Secure, no Domain and Path=/, and no
    other host of the domain can set it. `secure=False` is for development on plain http: no prefix, and not Secure.
    """

    base_name: str
    secure: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.base_name):
            raise BadValue(f"{self.base_name!r} is not a cookie name; use letters, digits, - and _")
        if self.base_name.startswith("__"):
            raise BadValue(f"{self.base_name!r}: browsers would read it as a prefix; use a plain name, such as 'sid'")

    @cached_property
    def name(self) -> str:
        return f"__Host-{self.base_name}" if self.secure else self.base_name

    def set(self, value: str, max_age_s: int | None = None) -> str:
        """The value of a Set-Cookie header. Without `max_age_s` the cookie lives until the browser is closed."""
        if not _VALUE.fullmatch(value):
            raise BadValue(f"the value of {self.name} has a character that is not allowed in a cookie")
        if len(self.name) + len(value) > NAME_AND_VALUE_MAX_BYTES:
            raise BadValue(f"{self.name} and its value have more than {NAME_AND_VALUE_MAX_BYTES} bytes")
        age = "" if max_age_s is None else f"; Max-Age={max_age_s}"
        return f"{self.name}={value}{age}{self._attributes}"

    def clear(self) -> str:
        """The value of a Set-Cookie header that clears the cookie. Browsers require the same attributes."""
        return f"{self.name}=; Max-Age=0{self._attributes}"

    def find(self, headers: Headers) -> str | None:
        """The value in a request; None if it is missing, empty or ambiguous."""
        return self.read("; ".join(headers.getlist("cookie"))) or None

    def read(self, header: str) -> str | None:
        """The value in a Cookie header, decoded as latin-1; None if it is missing or ambiguous.

        Without the prefix, the first of several wins, which is the most specific.
        """
        start = self._start
        before, _, after = header.partition(start)
        if after and start not in after and (not before or before.endswith("; ")):
            # The name is there once, where browsers put it: several times as fast as the pattern.
            return after.partition(";")[0].strip(" \t").strip('"')
        found = self._pairs.findall(header)
        if not found or (len(found) > 1 and self.is_ambiguous(header)):
            return None
        return _unquote(found[0])

    def is_ambiguous(self, header: str) -> bool:
        """Whether there are two different values with the prefix, which browsers never send: a sign of an attack."""
        return self.secure and len(set(self._values_in(header))) > 1

    def _values_in(self, header: str) -> list[str]:
        return [_unquote(value) for value in self._pairs.findall(header)]

    @cached_property
    def _start(self) -> str:
        return f"{self.name}="

    @cached_property
    def _pairs(self) -> re.Pattern[str]:
        """Allow only HTTP's white space before a name: for a browser `\\xa0__Host-sid` has no prefix, so other hosts of
        the domain could set it."""
        return re.compile(rf"(?:^|;)[ \t]*{re.escape(self.name)}=([^;]*)")

    @property
    def _attributes(self) -> str:
        return f"; Path=/; HttpOnly{'; Secure' if self.secure else ''}; SameSite=Lax"


def _unquote(value: str) -> str:
    return value.strip(" \t").strip('"')
