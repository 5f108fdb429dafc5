"""Blobs in every kind of storage: a folder, memory, and a real S3 server."""

import itertools
from pathlib import Path

import pytest

from keystead.parts.blobs import Blobs, open_blobs
from tests.parts.blobs.streams import on_server
from tests.real_servers import s3_server
from tests.servers import S3Server

__all__ = ["s3_server"]

_numbers = itertools.count()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture(params=["folder", "memory", "s3"])
def blobs(request: pytest.FixtureRequest, folder: Path) -> Blobs:
    """Empty blob storage."""
    match request.param:
        case "folder":
            return open_blobs(folder)
        case "memory":
            return open_blobs("memory://")
    return request.getfixturevalue("in_s3")  # type: ignore[no-any-return]


@pytest.fixture
def in_s3(s3_server: S3Server) -> Blobs:
    """A separate prefix in the bucket, with characters that a URL escapes."""
    return on_server(s3_server, f"/of test {next(_numbers)} ü")
