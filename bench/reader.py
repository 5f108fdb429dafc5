"""Background reads: `python -m bench.reader URL KEYS` reads until its input ends, and prints how long the reads took.

It pauses after each read, like an application under light load.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import threading
import time

from bench.doctor_keys import session_key
from keystead import connect

PAUSE_S = 0.001


async def read(url: str, keys: int) -> list[float]:
    """Seconds of each read."""
    stop = threading.Event()
    threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
    chance = random.Random(5)
    took: list[float] = []
    async with connect(url) as store:
        for _ in range(200):  # warm-up
            await store.run([("GET", session_key(chance.randrange(keys // 20 * 20)))])
        print("ready", flush=True)
        while not stop.is_set():
            name = session_key(chance.randrange(keys // 20 * 20))
            began = time.perf_counter()
            await store.run([("GET", name)])
            took.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)
    return took


def _until_input_ends(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main() -> None:
    took = sorted(asyncio.run(read(sys.argv[1], int(sys.argv[2]))))
    result = {
        "reads": len(took),
        "mean_us": statistics.fmean(took) * 1e6,
        "median_us": statistics.median(took) * 1e6,
        "p99_us": took[int(len(took) * 0.99)] * 1e6,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
