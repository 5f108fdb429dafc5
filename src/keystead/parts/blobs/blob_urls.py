"""Open blob storage from a URL."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from keystead.errors import BadUrl
from keystead.parts.blobs.blob_errors import BadBlobPath
from keystead.parts.blobs.blob_paths import check_path
from keystead.parts.blobs.blobs import Blobs, MemoryBlobs
from keystead.parts.blobs.folder import FolderBlobs
from keystead.stores.durations import seconds

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_TIMEOUT: Final = timedelta(seconds=30)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.IGNORECASE)
_OPTIONS = ("endpoint", "region", "timeout")
_WRITE = "write ./files, file:///var/files, memory:// or s3://bucket/prefix?endpoint=https://host&region=name"


def open_blobs(
    url: str | os.PathLike[str],
    *,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    make: bool = True,
) -> Blobs:
    """Open blob storage. Raises BadUrl for an invalid URL; makes no network access.

    `./files` or `file:///absolute/path`: a folder, created if it is missing, accessible only to its owner; without
    `make`, a missing folder is a BadUrl.
    `memory://`: in the memory of this process; each call creates a separate storage.
    `s3://bucket/prefix?endpoint=https://host:port&region=name&timeout=30s`: S3 and compatible storage. Every option is
    optional. Credentials are arguments, or AWS_ACCESS_KEY_ID and the other S3 variables; never in the URL.
    """
    try:
        text = os.fspath(url)
    except TypeError:
        raise BadUrl(f"the location of blobs must be text, not {type(url).__name__}: {_WRITE}") from None
    scheme, separator, rest = text.partition("://")
    if not text or "\0" in text:
        raise BadUrl(f"the location of blobs is a folder or a URL: {_WRITE}")
    if not separator:
        return _folder(Path(text), make)
    match scheme.lower():
        case "file":
            if not rest.startswith("/"):
                raise BadUrl("a file URL needs three slashes and an absolute path, as in file:///var/files")
            return _folder(Path(unquote(rest)), make)
        case "memory":
            if rest.strip("/"):
                raise BadUrl("memory:// takes no name and no options; each call creates a separate storage")
            from obstore.store import MemoryStore

            return MemoryBlobs(MemoryStore, "memory://", _TIMEOUT.total_seconds())
        case "s3":
            return _s3(text, access_key_id, secret_access_key, session_token)
    shown = scheme if re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme, re.IGNORECASE) else "this"
    raise BadUrl(f"{shown}:// is not a location of blobs: {_WRITE}")


def _folder(folder: Path, make: bool) -> Blobs:
    absolute = folder.absolute()  # a later chdir does not move it
    if not make and not absolute.is_dir():
        raise BadUrl(f"{absolute} cannot be the folder of blobs: it does not exist")
    try:
        absolute.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadUrl(f"{absolute} cannot be the folder of blobs: {error.strerror}") from None
    return FolderBlobs(absolute.resolve(), _TIMEOUT.total_seconds())


def _s3(url: str, access_key_id: str | None, secret_access_key: str | None, session_token: str | None) -> Blobs:
    place, _, query = url.partition("?")
    bucket, _, prefix = place.removeprefix(place[:5]).partition("/")
    # Never show it: the part before an @ is a secret.
    if "@" in bucket:
        raise BadUrl("do not put credentials into the URL of blobs; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if not _BUCKET.fullmatch(bucket):
        raise BadUrl(f"an S3 URL needs a bucket, as in s3://bucket/prefix; {bucket[:70]!r} is not one")
    prefix = unquote(prefix).strip("/")
    try:
        check_path(prefix or "-")
    except BadBlobPath as error:
        raise BadUrl(f"s3://{bucket}: {str(error).replace('path of a blob', 'prefix')}") from None
    options = _options(query)
    endpoint, region = _endpoint(options.get("endpoint")), options.get("region")
    timeout = timedelta(seconds=seconds("timeout", options["timeout"])) if "timeout" in options else _TIMEOUT
    config: S3Config = {"disable_bulk_delete": True}  # not every S3-compatible storage has it
    if endpoint is not None:
        config["endpoint"] = endpoint
    if region is not None:
        config["region"] = region
    if access_key_id is not None:
        config["access_key_id"] = access_key_id
    if secret_access_key is not None:
        config["secret_access_key"] = secret_access_key
    if session_token is not None:
        config["session_token"] = session_token
    client: ClientConfig = {
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
        "connect_timeout": min(timeout, timedelta(seconds=5)),
        "read_timeout": timeout,
        "timeout": timedelta(days=7),  # of a whole download, for slow readers
    }
    retries: RetryConfig = {
        "max_retries": 3,
        "retry_timeout": timeout,
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    from obstore.store import S3Store

    store = S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=retries)
    shown = f"s3://{bucket}" + (f"/{prefix}" if prefix else "") + (f" at {endpoint}" if endpoint else "")
    return Blobs(lambda: store, shown, timeout.total_seconds())


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            # Show names, never values: they may contain a secret.
            raise BadUrl(f"unknown option {name[:40]!r}; the options are: {', '.join(_OPTIONS)}")
        options[name] = text
    return options


def _endpoint(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username is not None or parts.query or parts.fragment:
        raise BadUrl("the endpoint of blobs must be http:// or https:// and a host: endpoint=https://s3.example.com")
    return text.rstrip("/")
