"""Where links may lead, and what files may be called."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from keystead.kits.sharing.service.outcomes import SharingRefused

URL_MAX = 2048
NAME_MAX = 128
PURPOSE_MAX = 64
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")
_URL = re.compile(r"https://[!-\[\]-~]+", re.IGNORECASE)  # no space, no backslash, nothing but ASCII


def checked_url(url: str, hosts: Sequence[str]) -> str:
    """The URL as a link keeps it, with `download=1`. Raises SharingRefused: it must be https, on one of these hosts.

    A host counts with all that are under it. A user, a port, an address in the place of a name and letters beyond
    ASCII are refused whatever the host: browsers and servers do not all read them alike.
    """
    if len(url) > URL_MAX or not _URL.fullmatch(url):
        raise _not_allowed()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _not_allowed() from None
    host = parts.netloc.lower()
    if port is not None or not _HOST.fullmatch(host):
        raise _not_allowed()
    if not any(host == allowed or host.endswith(f".{allowed}") for allowed in hosts):
        raise _not_allowed()
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "download"]
    return urlunsplit(("https", host, parts.path or "/", urlencode([*query, ("download", "1")]), ""))


def is_host(text: str) -> bool:
    """Whether this can be the name of a host, in lower case."""
    return _HOST.fullmatch(text) is not None


def _not_allowed() -> SharingRefused:
    return SharingRefused("HOST_NOT_ALLOWED", "links lead only to https addresses on the hosts that are allowed here")


def display_name(name: str | None) -> str:
    """The name of a file as people see it. Raises SharingRefused where it could mislead them or a file system."""
    text = unicodedata.normalize("NFC", name or "").strip()
    if not text:
        return "download.zip"
    if len(text) > NAME_MAX:
        raise SharingRefused("BAD_NAME", f"a file name has at most {NAME_MAX} characters")
    # Control characters, and what turns the direction of writing: `exe.‮gpj` looks like another kind of file.
    if any(unicodedata.category(char)[0] == "C" for char in text) or set(text) & set('/\\:*?"<>|') or text[0] == ".":
        raise SharingRefused(
            "BAD_NAME", 'a file name has no path, no control characters and none of : * ? " < > |, and starts with no .'
        )
    return text if "." in text else f"{text}.zip"


def file_name(name: str) -> str:
    """The same name in the characters that every system keeps."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "", name).lstrip(".")
    stem, dot, ending = kept.rpartition(".")
    return kept if stem and dot else f"download.{ending or 'zip'}"


def purpose_word(purpose: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "", purpose or "")[:PURPOSE_MAX] or "zips"
