"""Blob paths: path traversal is refused before anything is touched."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

from keystead.errors import shown
from keystead.parts.blobs.blob_errors import BadBlobPath

# S3 takes keys of 1024 bytes, file systems names of 255; both need room for what is added to a path.
MAX_PATH_BYTES = 900
MAX_SEGMENT_BYTES = 240


def checked(path: str) -> str:
    """The path itself. Raises BadBlobPath for anything but a plain relative path.

    Everything else is allowed as it is: spaces, `#`, `?`, `%`, any Unicode. No two paths are the same blob.
    """
    if not isinstance(path, str):
        raise BadBlobPath(f"the path of a blob is text, not {type(path).__name__}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise _refused(path, "has control characters or half a surrogate pair in it")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise _refused(path, f"is longer than {MAX_PATH_BYTES} bytes")
    for segment in path.split("/"):
        _check_segment(path, segment)
    return path


def _check_segment(path: str, segment: str) -> None:
    if not segment:
        raise _refused(path, "is empty, or begins or ends with a slash, or has two in a row")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise _refused(path, f"has a part of more than {MAX_SEGMENT_BYTES} bytes")
    # A proxy or a server may decode what we do not, once or twice: `%2e%2e` and `%252e%252e` are `..` to it.
    meant = segment
    while (decoded := unquote(meant)) != meant:
        meant = decoded
    if meant in (".", "..") or any(character in meant for character in "/\\\0"):
        raise _refused(path, "leads elsewhere: `..`, `.`, backslashes and what is decoded to them have no place in it")


def _refused(path: str, why: str) -> BadBlobPath:
    return BadBlobPath(f"the path of a blob {why}: {shown(path)}")
