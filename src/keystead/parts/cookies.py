"""Session cookies: `__Host-`, Secure, HttpOnly, SameSite; the same attributes to set and to clear them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from keystead.errors import BadValue

NAME_AND_VALUE_MAX_BYTES = 4096  # browsers silently drop longer cookies

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

    def read(self, header: str) -> str | None:
        """Its value in a Cookie header, which is decoded as latin-1; None: it is missing.

        Of several without the prefix, the first, which is the most specific. With the prefix a browser has at most one:
        two different values are an attack, and count as none.
        """
        if self.name + "=" not in header:
            return None
        found: list[str] = []
        for pair in header.split(";"):
            # Strip only HTTP white space: for a browser `\xa0__Host-sid` has no prefix, so other hosts can set it.
            name, _, value = pair.strip(" \t").partition("=")
            if name == self.name:
                found.append(value.strip('"'))
        if not found or (self.secure and len(set(found)) > 1):
            return None
        return found[0]

    @property
    def _attributes(self) -> str:
        return f"; Path=/; HttpOnly{'; Secure' if self.secure else ''}; SameSite=Lax"
