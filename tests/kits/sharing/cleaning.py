"""A process that cleans up until nothing expired is left, while one delete of a file in ten fails.

    python cleaning.py STORE-URL FOLDER

It writes the counts of each run as a line of JSON. Its clock runs ahead to the next retry where that is all there is to
wait for, so nothing here waits.
"""

import asyncio
import json
import random
import sys
import time

from keystead import KeyRing, connect
from keystead.kits.kit import Site
from keystead.kits.sharing import SharingKeys, SharingSettings
from keystead.kits.sharing.service import SealedLinks, Sharing
from keystead.parts.blobs import Blobs, BlobUnavailable, open_blobs

RING = KeyRing({"test": b"k" * 32})


class Failing(Blobs):
    """Real files in a real folder; one delete in ten fails."""

    def __init__(self, real: Blobs) -> None:
        self._real = real
        self.failed = 0

    async def delete(self, path: str) -> bool:
        if random.random() < 0.1:
            self.failed += 1
            raise BlobUnavailable("this delete fails, as one in ten does")
        return await self._real.delete(path)


async def no_pause(seconds: float) -> None:
    """Retry without waiting."""


async def clean_up(url: str, folder: str) -> None:
    ahead_ms = 0

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 + ahead_ms

    async with connect(url) as store:
        keys = SharingKeys(store, seal=RING, now_ms=now_ms)
        site = Site("http://127.0.0.1", "http://127.0.0.1", True, now_ms, lambda *_, **__: "")
        blobs = Failing(open_blobs(folder))
        sharing = Sharing(keys, SharingSettings(), site, blobs, SealedLinks([b"l" * 32]), pause=no_pause)
        while await keys.index().count_between(0, now_ms()):
            counts = await sharing.clean_up.run()
            print(json.dumps(counts.as_dict() | {"failed": blobs.failed}), flush=True)
            if counts.retry_ms is not None:
                ahead_ms += max(0, counts.retry_ms - now_ms())


if __name__ == "__main__":
    asyncio.run(clean_up(sys.argv[1], sys.argv[2]))
