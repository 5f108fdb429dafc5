"""Checks the URLs that links may point to, and file names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from keystead.kits.sharing.service.outcomes import SharingRefused

URL_MAX = 2048
NAME_MAX = 128
PURPOSE_MAX = 64
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]) *(?:\..*)?", re.IGNORECASE)  # reserved on Windows
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")
_JOINERS = "\u200c\u200d"
# Emoji flags of regions: a black flag, tag letters and a cancel tag. England, Scotland, Wales.
_TAGGED_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
# Unassigned code points reserved for default-ignorable characters, and noncharacters.
_NEVER_SHOWN = (("\u2065", "\u2065"), ("\ufdd0", "\ufdef"), ("\ufff0", "\ufff8"), ("\U000e0000", "\U000e0fff"))
_URL = re.compile(r"https://[!-\[\]-~]+", re.IGNORECASE)  # ASCII without space and backslash


def check_url(url: str, hosts: Sequence[str]) -> str:
    """The URL with `download=1`. Raises SharingRefused unless it is https and on one of these hosts or a subdomain.

    User info, ports, IP addresses and non-ASCII characters are always refused: parsers disagree on them.
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
    # Keep the rest of the query byte for byte: hosts may depend on its encoding.
    query = [part for part in parts.query.split("&") if part and part.partition("=")[0] != "download"]
    target = urlunsplit(("https", host, parts.path or "/", "&".join([*query, "download=1"]), ""))
    if len(target) > URL_MAX:
        raise _not_allowed()
    return target


def is_host(text: str) -> bool:
    """Whether this is a valid host name in lower case."""
    return _HOST.fullmatch(text) is not None


def _not_allowed() -> SharingRefused:
    return SharingRefused("HOST_NOT_ALLOWED", "links may point only to https URLs on the hosts in allowed_hosts")


def display_name(name: str | None, ending: str = ".zip") -> str:
    """The file name to show, with `ending` if it has no extension. Raises SharingRefused for misleading names."""
    text = unicodedata.normalize("NFC", name or "").strip()
    if not text:
        return f"download{ending}"
    if len(text) > NAME_MAX:
        raise SharingRefused("BAD_NAME", f"a file name may have at most {NAME_MAX} characters")
    if has_hidden_characters(text) or set(text) & set('/\\:*?"<>|') or text[0] == "." or text[-1] == ".":
        raise SharingRefused(
            "BAD_NAME",
            'a file name must not contain a path, control characters or : * ? " < > |, nor start or end with .',
        )
    if _DEVICES.fullmatch(text):
        raise SharingRefused("BAD_NAME", "this name is reserved on Windows; choose another")
    return text if "." in text else f"{text}{ending}"


def has_hidden_characters(text: str) -> bool:
    """Whether a text has invisible characters that could mislead: control characters, line separators, and changes of
    writing direction, which make `gpj.exe` look like `exe.jpg`.

    Zero-width joiners and flag tags are allowed: some languages and many emoji need them. Characters unknown to this
    Python, such as newer emoji, are allowed unless Unicode reserves their code point for invisible ones.
    """
    return any(map(_is_hidden, _TAGGED_FLAG.sub("", text)))


def _is_hidden(char: str) -> bool:
    category = unicodedata.category(char)
    if category == "Cn":
        return ord(char) & 0xFFFE == 0xFFFE or any(first <= char <= last for first, last in _NEVER_SHOWN)
    return char not in _JOINERS and (category[0] == "C" or category in ("Zl", "Zp"))


def file_name(name: str) -> str:
    """The name reduced to characters that are safe on every file system."""
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    safe = _drop_unsafe(stem).strip(".") or "download"
    return f"{safe}.{_drop_unsafe(ending) or 'zip'}" if dot else safe


def _drop_unsafe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "", text)


def purpose_word(purpose: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "", purpose or "")[:PURPOSE_MAX] or "zips"
