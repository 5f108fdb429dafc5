"""Blob storage: files in a folder, in memory, or in S3-compatible storage, with five methods."""

from importlib.util import find_spec

from keystead.extras import from_extra
from keystead.parts.blobs.blob_errors import BadBlobPath, BlobError, BlobGone, BlobTooLarge, BlobUnavailable
from keystead.parts.blobs.blob_urls import open_blobs
from keystead.parts.blobs.blobs import Blobs

with from_extra("blobs", "keystead.parts.blobs"):
    # Not imported yet: it takes 6 MB, and a server may never store a file.
    if find_spec("obstore") is None:
        raise ModuleNotFoundError(name="obstore")

__all__ = ["BadBlobPath", "BlobError", "BlobGone", "BlobTooLarge", "BlobUnavailable", "Blobs", "open_blobs"]
