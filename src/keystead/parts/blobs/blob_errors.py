"""Blob errors. No message contains a credential or the text of a server."""

from __future__ import annotations

import os
import re

from keystead.errors import BadArgument, KeysteadError, printable

_OS_ERROR = re.compile(r"\(os error (\d{1,5})\)")
_STATUS = re.compile(r"non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,40})</Code>")


class BlobError(KeysteadError):
    """The base class of blob errors."""

    code = "blob"


class BlobUnavailable(BlobError):
    """The blob storage is unreachable, timed out, or denies access. Try again later.

    A `put` whose reply was lost may have taken effect; a half-written blob is never visible.
    """

    code = "blob-unavailable"


class BlobGone(BlobError):
    """There is no such blob. `path` is its path."""

    code = "blob-gone"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no blob {printable(path)}")
        self.path = path


class BlobTooLarge(BlobError):
    """A stream is longer than `max_bytes`. Nothing was written, and the previous blob is unchanged."""

    code = "blob-too-large"

    def __init__(self, path: str, max_bytes: int) -> None:
        super().__init__(f"{printable(path)}: the blob is larger than the limit of {max_bytes:,} bytes")
        self.path = path
        self.max_bytes = max_bytes


class BadBlobPath(BadArgument):
    """An invalid path, such as a path traversal. Nothing was touched."""

    code = "bad-blob-path"


def is_missing_bucket(error: Exception) -> bool:
    """Whether "not found" refers to the bucket, not the blob."""
    found = _CODE.search(str(error))
    return found is not None and found[1] == "NoSuchBucket"


def reason(error: Exception) -> str:
    """The reason in our own words: the library's text contains requests and responses."""
    text = str(error)
    if found := _OS_ERROR.search(text):
        return os.strerror(int(found[1]))
    if found := _STATUS.search(text):
        word = _CODE.search(text)
        return f"it responded with status {found[1]}" + (f", {word[1]}" if word else "")
    if "kind: Timeout" in text:
        return "it timed out"
    if "kind: Connect" in text:
        return "it is unreachable"
    return type(error).__name__
