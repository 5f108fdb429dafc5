"""Error messages of the Sessions API, in the client's preferred language."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from keystead.catalogue import Catalogue, message
from keystead.kits.language import Speaker, language_of

_CATALOGUE: Final = Catalogue(Path(__file__).parent)
MESSAGES: Final = {
    "not-json": message("The body of the request is not JSON."),
    "content-type": message("The content type must be application/json."),
    "bad-request": message("The request is invalid."),
    "unauthorized": message("The API key is missing, unknown or revoked."),
    "not-found": message("There is no value under this key."),
    "foreign": message("This request does not come from a page of this site; reload the page."),
    "too-many": message("The limit of stored values is reached; remove some first."),
    "too-often": message("Too many requests; wait a minute."),
    "too-long": message("The key or the value is too long."),
    "unreadable": message("The stored data cannot be read; the operator of this server finds the details in the log."),
    "store": message("The data store does not respond; try again in a moment."),
}


def message_for(code: str, accept_language: str) -> str:
    """The message for an error code, in English if no preferred language is available."""
    return Speaker(language_of(accept_language), _CATALOGUE)(MESSAGES[code])
