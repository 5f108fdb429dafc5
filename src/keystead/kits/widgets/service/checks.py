"""What is let in: addresses, ids, tokens, names, numbers and texts. What is not is refused, and nothing is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from typing import Any, Final
from urllib.parse import urlsplit

from keystead.kits.widgets.service.refused import wrong
from keystead.kits.widgets.service.settings import WidgetSettings, folded_text

LARGEST: Final = 999_999_999
URL_MAX: Final = 2048
TOKEN_MIN: Final = 8
TOKEN_MAX: Final = 16
ID_MAX: Final = 128

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DERIVED = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}")
_BLANK: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe0e\ufe0f"  # marks and letters that show nothing
_LINK = re.compile(r"https?://|www\.")


def checked_url(url: Any) -> str:
    """The address of a page, as it was written: two spellings are two pages, as in the original."""
    if not isinstance(url, str) or not url:
        raise wrong("url", "url is the address of the page, such as https://example.com/page")
    if len(url) > URL_MAX:
        raise wrong("url", f"url has at most {URL_MAX} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise wrong("url", "url is no address; write https://example.com/page") from None
    is_plain = url.isprintable() and " " not in url and "\\" not in url and not _has_half(url)
    if parts.scheme != "https" or not host or not is_plain or not url.startswith("https://"):
        raise wrong("url", "url begins with https:// and has no spaces; write https://example.com/page")
    if parts.username is not None or parts.password is not None or port == 0:
        raise wrong("url", "url names no user and no password; write https://example.com/page")
    return url


def candidates(url: str) -> list[str]:
    """The ids that a page can have, the first of them unless another page has it: `example-a1b2c3d4`."""
    host = (urlsplit(url).hostname or "").removeprefix("www.")
    label = re.sub(r"[^a-z0-9-]", "", host.split(".")[0])
    digest = hashlib.sha256(url.encode()).hexdigest()
    name = label.strip("-")[:63] or "page"
    return [f"{name}-{digest[at : at + 8]}" for at in range(0, 64, 8)]


def is_derived(id: str) -> bool:
    """Whether an id looks like one that is made of the address of a page."""
    return _DERIVED.fullmatch(id) is not None


def another(url: str) -> str:
    """An id for a page that cannot have any of these."""
    return f"{candidates(url)[0][:-9]}-{secrets.token_hex(4)}"


def is_id(id: Any) -> bool:
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def checked_id(id: Any) -> str:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise wrong("id", f"id has 1 to {ID_MAX} letters, digits, _ and -, such as example-a1b2c3d4")
    return id


def checked_token(token: Any) -> str:
    """A token for a new widget."""
    if not isinstance(token, str) or not TOKEN_MIN <= len(token) <= TOKEN_MAX or _has_half(token):
        raise wrong("token", f"the owner's token has {TOKEN_MIN} to {TOKEN_MAX} characters")
    return token


def could_be_token(token: Any) -> bool:
    """Whether it is worth a slow hash."""
    return isinstance(token, str) and TOKEN_MIN <= len(token) <= TOKEN_MAX and not _has_half(token)


def whole(field: str, number: Any, least: int = 0, most: int = LARGEST) -> int:
    if type(number) is not int or not least <= number <= most:
        raise wrong(field, f"{field} is a whole number from {least} to {most}")
    return number


def text(field: str, given: Any, least: int, most: int) -> str:
    """A text of one line, without what cannot be seen: it is counted in characters, after its ends are trimmed."""
    return _text(field, given, least, most, lines=False)


def lines(field: str, given: Any, least: int, most: int) -> str:
    """The same, of several lines."""
    return _text(field, given, least, most, lines=True)


def _text(field: str, given: Any, least: int, most: int, *, lines: bool) -> str:
    said = f"{field} has {least} to {most} characters" if least else f"{field} has at most {most} characters"
    if not isinstance(given, str) or len(given) > 4 * most + 1000 or _has_half(given):
        raise wrong(field, said)
    trimmed = unicodedata.normalize("NFC", given).replace("\r\n", "\n").strip()
    if not least <= len(trimmed) <= most or (trimmed and not any(map(_can_be_seen, trimmed))):
        raise wrong(field, said)
    if any(_is_control(char) and not (lines and char in "\n\t") for char in trimmed):
        raise wrong(field, f"{field} holds characters that cannot be shown")
    return trimmed


def refuse_spam(settings: WidgetSettings, field: str, *texts: str) -> None:
    """What the settings do not let through: links, characters in a row, words."""
    joined = "\n".join(texts)
    folded = folded_text(joined)
    if not settings.allow_links and _LINK.search(folded):
        raise wrong(field, "links are not let through here")
    if settings.max_repeats and re.search(r"(\S)\1{" + str(settings.max_repeats) + "}", folded):
        raise wrong(field, f"no character may stand more than {settings.max_repeats} times in a row here")
    if any(word in folded for word in settings.banned_words):
        raise wrong(field, "this holds a word that is not let through here")


def _is_control(char: str) -> bool:
    """What ends a line, and what turns the direction of the text around it; joiners of emoji are let in."""
    turns = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
    return unicodedata.category(char) in ("Cc", "Zl", "Zp") or char in turns


def _can_be_seen(char: str) -> bool:
    """A name of joiners and spaces alone would look like none."""
    return unicodedata.category(char)[0] not in "CZ" and char not in _BLANK


def _has_half(text: str) -> bool:
    """Half a surrogate pair is no text."""
    return any("\ud800" <= char <= "\udfff" for char in text)
