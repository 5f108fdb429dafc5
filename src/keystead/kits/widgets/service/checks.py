"""Input validation: URLs, ids, tokens, numbers and texts. Invalid input is refused, and nothing is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from typing import Any, Final
from urllib.parse import urlsplit

from keystead.kits.widgets.service.refused import invalid
from keystead.kits.widgets.service.settings import WidgetSettings, fold_text

LARGEST: Final = 999_999_999
URL_MAX: Final = 2048
TOKEN_MIN: Final = 8
TOKEN_MAX: Final = 16
ID_MAX: Final = 128

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DERIVED = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}")
_BLANK: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe0e\ufe0f"  # invisible marks and letters
_TURNS: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"  # change the direction of text
_LINK = re.compile(r"https?://|www\.")


def check_page_url(url: Any) -> str:
    """The URL, unchanged: two spellings are two pages, as in the original. Raises WidgetRefused."""
    if not isinstance(url, str) or not url:
        raise invalid("url", "url must be the URL of the page, such as https://example.com/page")
    if len(url) > URL_MAX:
        raise invalid("url", f"url must have at most {URL_MAX} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise invalid("url", "url is not a valid URL; an example is https://example.com/page") from None
    is_plain = url.isprintable() and " " not in url and "\\" not in url and not _has_lone_surrogate(url)
    if parts.scheme != "https" or not host or not is_plain or not url.startswith("https://"):
        raise invalid("url", "url must start with https:// and have no spaces, as in https://example.com/page")
    if parts.username is not None or parts.password is not None or port == 0:
        raise invalid("url", "url must have no user name, password or port 0, as in https://example.com/page")
    return url


def candidate_ids(url: str) -> list[str]:
    """The ids that a page can have, such as `example-a1b2c3d4`: the first that no other page has."""
    host = (urlsplit(url).hostname or "").removeprefix("www.")
    label = re.sub(r"[^a-z0-9-]", "", host.split(".")[0])
    digest = hashlib.sha256(url.encode()).hexdigest()
    name = label.strip("-")[:63] or "page"
    return [f"{name}-{digest[at : at + 8]}" for at in range(0, 64, 8)]


def is_derived_id(id: str) -> bool:
    """Whether an id looks like one that is derived from a page URL."""
    return _DERIVED.fullmatch(id) is not None


def make_random_id(url: str) -> str:
    """An id for a page whose candidate ids are all taken."""
    return f"{candidate_ids(url)[0][:-9]}-{secrets.token_hex(4)}"


def is_id(id: Any) -> bool:
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def check_id(id: Any) -> str:
    if not isinstance(id, str) or not is_id(id):
        raise invalid("id", f"id must have 1 to {ID_MAX} letters, digits, _ and -, such as example-a1b2c3d4")
    return id


def is_token(token: Any) -> bool:
    """Whether it has the form of an owner token: only then is it worth a slow hash."""
    return isinstance(token, str) and TOKEN_MIN <= len(token) <= TOKEN_MAX and not _has_lone_surrogate(token)


def check_token(token: Any) -> str:
    if not isinstance(token, str) or not is_token(token):
        raise invalid("token", f"the owner token must have {TOKEN_MIN} to {TOKEN_MAX} characters")
    return token


def check_number(field: str, number: Any, least: int = 0, most: int = LARGEST) -> int:
    if type(number) is not int or not least <= number <= most:
        raise invalid(field, f"{field} must be a whole number from {least} to {most}")
    return number


def check_text(field: str, given: Any, least: int, most: int, *, multiline: bool = False) -> str:
    """The text in NFC, trimmed, of `least` to `most` characters. Raises WidgetRefused for invisible characters."""
    length = f"{field} must have {f'{least} to' if least else 'at most'} {most} characters"
    if not isinstance(given, str) or len(given) > 4 * most + 1000 or _has_lone_surrogate(given):
        raise invalid(field, length)
    trimmed = unicodedata.normalize("NFC", given).replace("\r\n", "\n").strip()
    if not least <= len(trimmed) <= most or (trimmed and not any(map(_is_visible, trimmed))):
        raise invalid(field, length)
    if any(_is_control(char) and not (multiline and char in "\n\t") for char in trimmed):
        raise invalid(field, f"{field} contains characters that cannot be displayed")
    return trimmed


def refuse_spam(settings: WidgetSettings, field: str, *texts: str) -> None:
    """Refuse links, repeated characters and banned words, as configured. Raises WidgetRefused."""
    folded = fold_text("\n".join(texts))
    if not settings.allow_links and _LINK.search(folded):
        raise invalid(field, "links are not allowed here")
    if settings.max_repeats and re.search(r"(\S)\1{" + str(settings.max_repeats) + "}", folded):
        raise invalid(field, f"a character must not occur more than {settings.max_repeats} times in a row here")
    if any(word in folded for word in settings.banned_words):
        raise invalid(field, "this contains a word that is not allowed here")


def _is_control(char: str) -> bool:
    """Whether it ends a line or changes the text direction. Emoji joiners do not count."""
    return unicodedata.category(char) in ("Cc", "Zl", "Zp") or char in _TURNS


def _is_visible(char: str) -> bool:
    return unicodedata.category(char)[0] not in "CZ" and char not in _BLANK


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
