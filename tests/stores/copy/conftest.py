"""Every store by name, empty, as for backups; and databases, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keystead import Store
from keystead.stores.copy import full_copy
from tests.real_servers import (
    cloudflare_server,
    mariadb_server,
    memcached_server,
    postgres_server,
    redis_server,
    upstash_gateway,
    valkey_cluster,
    valkey_server,
)
from tests.stores.backup.conftest import url_of as url_of_others
from tests.stores.backup.contents import contents

__all__ = [
    "cloudflare_server",
    "mariadb_server",
    "memcached_server",
    "postgres_server",
    "redis_server",
    "upstash_gateway",
    "url_of",
    "url_of_others",
    "valkey_cluster",
    "valkey_server",
]

UrlOf = Callable[[str], str]


@pytest.fixture
def url_of(request: pytest.FixtureRequest, url_of_others: UrlOf) -> UrlOf:
    def url(name: str) -> str:
        if name not in ("postgres", "mariadb", "memcached", "cloudflare"):
            return url_of_others(name)
        server = request.getfixturevalue(f"{name}_server")
        server.empty()
        return str(server.url)

    return url


async def own(store: Store) -> dict[bytes, Any]:
    """The contents, without the marker of the copy."""
    return {key: held for key, held in (await contents(store)).items() if not key.startswith(b"keystead:copy:")}


def files(folder: Path = Path()) -> list[str]:
    """The files that a copy left in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate folder for progress files, and no pause between passes."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(full_copy, "_PAUSE_S", (0.0, 0.0))
    return folder
