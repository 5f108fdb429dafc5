"""Blob paths: path traversal is refused before anything is touched."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

from keystead.errors import printable
from keystead.parts.blobs.blob_errors import BadBlobPath

# S3 keys have at most 1024 bytes, file names 255; both limits leave room for what is added to a path.
MAX_PATH_BYTES = 900
MAX_SEGMENT_BYTES = 240


def check_path(path: str) -> str:
    """Returns the path itself. Raises BadBlobPath for anything but a plain relative path.

    Everything else is allowed: spaces, `#`, `?`, `%`, any Unicode. Different paths are different blobs.
    """
    if not isinstance(path, str):
        raise BadBlobPath(f"the path of a blob must be text, not {type(path).__name__}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise _bad_path(path, "contains control characters or a lone surrogate")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise _bad_path(path, f"exceeds {MAX_PATH_BYTES} bytes")
    for segment in path.split("/"):
        _check_segment(path, segment)
    return path


def _check_segment(path: str, segment: str) -> None:
    if not segment:
        raise _bad_path(path, "is empty, starts or ends with a slash, or has two slashes in a row")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise _bad_path(path, f"has a segment of more than {MAX_SEGMENT_BYTES} bytes")
    # A proxy or a server may decode the path once or twice: then `%2e%2e` and `%252e%252e` are `..`.
    meant = segment
    while (decoded := unquote(meant)) != meant:
        meant = decoded
    if meant in (".", "..") or any(character in meant for character in "/\\\0"):
        raise _bad_path(path, "is a path traversal: it contains `..`, `.` or a backslash, possibly percent-encoded")


def _bad_path(path: str, why: str) -> BadBlobPath:
    return BadBlobPath(f"the path of a blob {why}: {printable(path)}")
