"""The session data kit on stores of every kind, and on two of them by role."""

import pytest

from keystead import Store
from keystead.kits.sessiondata import SessionArea, SessionData, SessionDataKeys, SessionDataSettings
from keystead.kits.sessiondata.service import guid_of
from tests.every_store import (
    EVERY,
    mariadb_server,
    on,
    on_urls,
    postgres_server,
    redis_server,
    store,
    stores,
    urls,
    valkey_cluster,
)
from tests.kits.conftest import Raw
from tests.kits.sharing.visiting import Clock

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "urls", "valkey_cluster"]

everywhere = on(*EVERY, "redis+postgres", "cluster")
here = on("memory")
everywhere_by_http = on_urls("sqlite", "redis", "redis+postgres", "postgres", "mariadb")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(stores: dict[str, Store], clock: Clock) -> SessionDataKeys:
    return keys_on(stores, clock)


@pytest.fixture
def data(keys: SessionDataKeys) -> SessionData:
    return SessionData(keys)


class Begun:
    """A session, and its raw contents in the store."""

    def __init__(self, data: SessionData, keys: SessionDataKeys, session_id: str) -> None:
        guid = guid_of(session_id)
        self.id = session_id
        self.area: SessionArea = data.session(session_id)
        self.plain = keys.session(guid=guid).key
        self.once = keys.read_once(guid=guid).key
        self.raw = Raw(keys.store_of("default"))

    async def fields(self) -> tuple[set[bytes], set[bytes]]:
        """The names in both hashes, without StartTime."""
        plain, once = (await self.raw.ask("HGETALL", self.plain), await self.raw.ask("HGETALL", self.once))
        return set(plain) - {b"StartTime"}, set(once)

    async def minutes_left(self) -> tuple[int, int]:
        """The remaining lifetime of both hashes in minutes; -1: none."""
        left = [await self.raw.ask("PTTL", key) for key in (self.plain, self.once)]
        plain, once = (-1 if ms < 0 else round(ms / 60_000) for ms in left)
        return plain, once

    async def pass_minutes(self, minutes: int) -> None:
        """Shorten the lifetime of both hashes, as if time had passed."""
        for key in (self.plain, self.once):
            left = await self.raw.ask("PTTL", key)
            if left > 0:
                await self.raw.ask("PEXPIRE", key, left - minutes * 60_000)

    async def expire(self) -> None:
        """Let both hashes expire now."""
        for key in (self.plain, self.once):
            await self.raw.ask("PEXPIREAT", key, 1)


@pytest.fixture
async def session(data: SessionData, keys: SessionDataKeys) -> Begun:
    return Begun(data, keys, await data.begin())


def keys_on(stores: dict[str, Store], clock: Clock) -> SessionDataKeys:
    return SessionDataKeys(stores["default"], now_ms=clock, durable=stores.get("durable", stores["default"]))


def renewed_by_writes(keys: SessionDataKeys, retention: str = "1440m") -> SessionData:
    return SessionData(keys, SessionDataSettings(renewed_by="write", retention=retention))
