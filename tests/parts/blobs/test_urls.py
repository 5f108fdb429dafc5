"""URLs of blob storage."""

from pathlib import Path

import pytest

from keystead.errors import BadUrl
from keystead.parts.blobs import open_blobs
from tests.parts.blobs.streams import put


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "./files"),
        ("a\0b", "./files"),
        ("file://host/path", "three slashes"),
        ("memory://name", "no name"),
        ("ftp://host/files", "ftp://"),
        ("gs://bucket", "gs://"),
        ("my secret://x", "this://"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://b", "bucket"),
        ("s3://bucket/../up", "prefix"),
        ("s3://bucket/%2e%2e/up", "prefix"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://key:s3cret@bucket/a", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket?secret_access_key=s3cret", "unknown option"),
        ("s3://bucket?endpoint=localhost:8333", "endpoint"),
        ("s3://bucket?endpoint=http://", "endpoint"),
        ("s3://bucket?endpoint=http://key:s3cret@localhost", "endpoint"),
        ("s3://bucket?endpoint=http://localhost:x", "endpoint"),
        ("s3://bucket?timeout=5", "timeout=500ms"),
    ],
)
def test_an_invalid_url_is_a_one_line_error_without_the_secret(url: str, said: str) -> None:
    with pytest.raises(BadUrl) as refused:
        open_blobs(url)
    sentence = str(refused.value)
    assert said in sentence
    assert "s3cret" not in sentence
    assert sentence.isprintable()


def test_a_url_is_text() -> None:
    with pytest.raises(BadUrl, match="not int"):
        open_blobs(7)  # type: ignore[arg-type]


def test_a_file_cannot_be_the_folder_of_blobs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadUrl, match="cannot be the folder of blobs"):
            open_blobs(place)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a%20b?endpoint=https://s3.example.com/&region=eu-central-1", "s3://bucket/a b at https://s3.example.com"),
    ],
)  # fmt: skip
def test_a_place_is_shown_as_people_know_it(url: str, shown: str) -> None:
    blobs = open_blobs(url)
    assert blobs.url == shown
    assert repr(blobs) == f"<blobs in {shown}>"


async def test_each_memory_is_its_own() -> None:
    one, other = open_blobs("memory://"), open_blobs("memory://")
    await put(one, "a", b"1")
    assert await other.size("a") is None
