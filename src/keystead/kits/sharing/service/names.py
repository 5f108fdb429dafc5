"""Where links may lead, and what files may be called."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from keystead.kits.sharing.service.outcomes import SharingRefused

URL_MAX = 2048
NAME_MAX = 128
PURPOSE_MAX = 64
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]) *(?:\..*)?", re.IGNORECASE)  # to some systems
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")
_JOINERS = "\u200c\u200d"
# A black flag, the letters of a region as tags, and the tag that ends them: England, Scotland, Wales.
_TAGGED_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
# Places without a character so far that are reserved: for what is ignored where it is shown, and for no character.
_NEVER_SHOWN = (("\u2065", "\u2065"), ("\ufdd0", "\ufdef"), ("\ufff0", "\ufff8"), ("\U000e0000", "\U000e0fff"))
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
    # The rest of the query stays as it was written: a host may read it by its bytes.
    query = [part for part in parts.query.split("&") if part and part.partition("=")[0] != "download"]
    kept = urlunsplit(("https", host, parts.path or "/", "&".join([*query, "download=1"]), ""))
    if len(kept) > URL_MAX:
        raise _not_allowed()
    return kept


def is_host(text: str) -> bool:
    """Whether this can be the name of a host, in lower case."""
    return _HOST.fullmatch(text) is not None


def _not_allowed() -> SharingRefused:
    return SharingRefused(
        "HOST_NOT_ALLOWED", "links lead only to https addresses on the hosts that the setting allowed_hosts names"
    )


def display_name(name: str | None, ending: str = ".zip") -> str:
    """The name of a file as people see it. Raises SharingRefused where it could mislead them or a file system.

    `ending` is what a name gets that has none.
    """
    text = unicodedata.normalize("NFC", name or "").strip()
    if not text:
        return f"download{ending}"
    if len(text) > NAME_MAX:
        raise SharingRefused("BAD_NAME", f"a file name has at most {NAME_MAX} characters")
    if misleads(text) or set(text) & set('/\\:*?"<>|') or text[0] == "." or text[-1] == ".":
        raise SharingRefused(
            "BAD_NAME",
            'a file name has no path, no control characters and none of : * ? " < > |, and no . at either end',
        )
    if _DEVICES.fullmatch(text):
        raise SharingRefused("BAD_NAME", "some systems take this name for a device; choose another")
    return text if "." in text else f"{text}{ending}"


def misleads(text: str) -> bool:
    """Whether a text has what cannot be seen and could mislead: control characters, ends of lines, and what turns the
    direction of writing, so that `gpj.exe` ends in `jpg`.

    The two that join letters, or keep them apart, are part of how some languages and many emoji are written, and so
    are the tags of a flag. A character that this Python does not know yet, such as an emoji of a newer Unicode, is
    taken as it is, unless Unicode reserves its place for what is never shown.
    """
    return any(map(_is_unseen, _TAGGED_FLAG.sub("", text)))


def _is_unseen(char: str) -> bool:
    category = unicodedata.category(char)
    if category == "Cn":
        return ord(char) & 0xFFFE == 0xFFFE or any(first <= char <= last for first, last in _NEVER_SHOWN)
    return char not in _JOINERS and (category[0] == "C" or category in ("Zl", "Zp"))


def file_name(name: str) -> str:
    """The same name in the characters that every system keeps."""
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    kept = _drop_unsafe(stem).strip(".") or "download"
    return f"{kept}.{_drop_unsafe(ending) or 'zip'}" if dot else kept


def _drop_unsafe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "", text)


def purpose_word(purpose: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "", purpose or "")[:PURPOSE_MAX] or "zips"
