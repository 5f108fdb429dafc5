"""Listing the keys of a namespace, in pages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from keystead.errors import BadArgument, StoreUnavailable
from keystead.stores.cloudflare_kv.entry_format import deadline_of, key_of, prefix_of
from keystead.stores.cloudflare_kv.rest_api import CloudflareApi, Query
from keystead.stores.command_options import ScanOptions
from keystead.stores.commands import Call, Reply
from keystead.stores.globs import compile_glob, literal_prefix

FEWEST, MOST = 10, 1000  # keys of one request
_CURSORS = 1000  # of SCAN that are remembered


class KeyListing:
    """Pages of keys. A list lags behind writes as reads do."""

    def __init__(self, api: CloudflareApi, clock: Callable[[], int]) -> None:
        self._api = api
        self._clock = clock
        self._cursors: dict[int, str] = {}  # SCAN has numbers, Cloudflare has texts
        self._numbers = count(1)

    async def page(
        self, pattern: bytes, kind: str | None, size: int, cursor: str, deadline: float
    ) -> tuple[list[bytes], str]:
        """Some keys, and the cursor of the next ones; empty: these were the last."""
        if kind not in (None, "string"):
            return [], ""
        query: Query = {"limit": min(max(size, FEWEST), MOST)}
        if prefix := prefix_of(literal_prefix(pattern)):
            query["prefix"] = prefix
        if cursor:
            query["cursor"] = cursor
        answer = await self._api.ask("GET", "/keys", deadline, query=query)
        listed, info = answer.get("result"), answer.get("result_info")
        if not isinstance(listed, list) or not isinstance(info, dict | None):
            raise StoreUnavailable("Cloudflare's answer is not a list of keys; check the option api")
        glob, now_ms = compile_glob(pattern), self._clock()
        keys = [key_of(entry["name"]) for entry in listed if _is_live(entry, now_ms)]
        return [key for key in keys if glob.fullmatch(key)], str((info or {}).get("cursor") or "")

    async def count(self, deadline: float) -> int:
        """How many keys there are: a request for every 1,000."""
        total, cursor = 0, ""
        while True:
            found, cursor = await self.page(b"*", None, MOST, cursor, deadline)
            total += len(found)
            if not cursor:
                return total

    async def step(self, call: Call, deadline: float) -> Reply:
        """SCAN."""
        options: ScanOptions = call.options
        cursor = self._cursors.get(options.cursor, "")
        if options.cursor and not cursor:
            raise BadArgument("the cursor is not one of this connection, or too old; start again with 0")
        found, cursor = await self.page(options.match or b"*", options.kind, options.page, cursor, deadline)
        if not cursor:
            return [b"0", found]
        number = next(self._numbers)
        self._cursors[number] = cursor
        if len(self._cursors) > _CURSORS:
            del self._cursors[next(iter(self._cursors))]
        return [b"%d" % number, found]


def _is_live(entry: Any, now_ms: int) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return False
    at_ms = deadline_of(entry.get("metadata"), entry.get("expiration"))
    return at_ms is None or at_ms > now_ms
