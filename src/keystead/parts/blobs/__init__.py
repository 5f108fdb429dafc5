"""Blob storage: files in a folder, in memory, or in S3-compatible storage, with five methods."""

from keystead.extras import from_extra

with from_extra("blobs", "keystead.parts.blobs"):
    from keystead.parts.blobs.blob_errors import BadBlobPath, BlobError, BlobGone, BlobTooLarge, BlobUnavailable
    from keystead.parts.blobs.blob_urls import open_blobs
    from keystead.parts.blobs.blobs import Blobs

__all__ = ["BadBlobPath", "BlobError", "BlobGone", "BlobTooLarge", "BlobUnavailable", "Blobs", "open_blobs"]
