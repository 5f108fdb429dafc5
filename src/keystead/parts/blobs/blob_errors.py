"""What goes wrong with blobs. No sentence holds a credential, or what a server wrote."""

from __future__ import annotations

import os
import re

from keystead.errors import BadArgument, KeysteadError, shown

_OS_ERROR = re.compile(r"\(os error (\d{1,5})\)")
_STATUS = re.compile(r"non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,40})</Code>")


class BlobError(KeysteadError):
    """The root of what can go wrong with blobs."""

    code = "blob"


class BlobUnavailable(BlobError):
    """The place of the blobs cannot be reached, did not answer in time, or does not let us do this. Try again later.

    A `put` may have taken effect where its answer was lost; nothing is ever visible half written.
    """

    code = "blob-unavailable"


class BlobGone(BlobError):
    """There is no such blob. `path` says which."""

    code = "blob-gone"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no blob {shown(path)}")
        self.path = path


class BlobTooLarge(BlobError):
    """A stream that is longer than `max_bytes`. Nothing of it was kept, and what was there before is as it was."""

    code = "blob-too-large"

    def __init__(self, path: str, max_bytes: int) -> None:
        super().__init__(f"{shown(path)}: the blob is larger than the {max_bytes:,} bytes that it may have")
        self.path = path
        self.max_bytes = max_bytes


class BadBlobPath(BadArgument):
    """A path that no blob can have, such as one that leads out of its folder. Nothing was touched."""

    code = "bad-blob-path"


def is_missing_bucket(error: Exception) -> bool:
    """Whether "not found" was said of the bucket, and so nothing was said of the blob."""
    found = _CODE.search(str(error))
    return found is not None and found[1] == "NoSuchBucket"


def reason(error: Exception) -> str:
    """Why, in words of ours: the library's own text shows requests, and what a server answered to them."""
    said = str(error)
    if found := _OS_ERROR.search(said):
        return os.strerror(int(found[1]))
    if found := _STATUS.search(said):
        word = _CODE.search(said)
        return f"it answered with status {found[1]}" + (f", {word[1]}" if word else "")
    if "kind: Timeout" in said:
        return "it did not answer in time"
    if "kind: Connect" in said:
        return "it cannot be reached"
    return type(error).__name__
