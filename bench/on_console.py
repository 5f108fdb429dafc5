"""The console on 1,000,000 keys in Redis: how fast the first page of a family appears, and what a load beside it pays.

The pages are timed at a client that draws nothing, and one of them in Chromium until it is drawn.

The server runs as a command. The load is one reader with a pause of a millisecond, in a process of its own; in turns
it reads alone, and beside somebody who opens the first page of one family after the other.
"""

from __future__ import annotations

import asyncio
import math
import re
import statistics
import sysconfig
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from playwright.async_api import async_playwright

from bench.doctor_keys import GROUP, fill
from bench.measure import Progress, Row, Target
from bench.on_doctor import ROOT, Reads, environment, reading
from keystead import connect
from keystead.console.console_access import ConsoleAccess
from keystead.console.console_keys import ConsoleKeys
from tests import servers
from tests.serving import free_port, program

KEYS, KEYS_QUICK = 1_000_000, 2_500
FAMILIES = ("session", "daily", "users", "address")  # half of all keys, a quarter, a single key, a twentieth
THINKS_S = 0.5  # between two pages
PAGE = Target("under", 300)
SLOWER = Target("at most", 1.1)


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    rounds, turn_s = (1, 0.5) if quick else (15, 4.0)
    with servers.redis() as server:
        async with connect(server.url) as store:
            with progress.activity(f"console · loading {count:,} keys", count) as advance:
                users = await fill(store, count, advance)
        alone: list[Reads] = []
        beside: list[Reads] = []
        took_ms: dict[str, list[float]] = {family: [] for family in FAMILIES}
        async with _operator(server.url, folder) as person:
            drawn_ms = await _draw(str(person.base_url), folder)
            with progress.activity("console · pages beside reads", rounds) as advance:
                for _ in range(rounds):
                    async with reading(server.url, users * GROUP) as reads:
                        await asyncio.sleep(turn_s)
                    alone.append(reads)
                    async with reading(server.url, users * GROUP) as reads:
                        await _look_around(person, took_ms, turn_s)
                    beside.append(reads)
                    advance()
    ratios = [one.mean_us / other.mean_us for one, other in zip(beside, alone, strict=True)]
    late_ratios = [one.p99_us / other.p99_us for one, other in zip(beside, alone, strict=True)]
    pages = [
        Row("console", f"first page of the family {family}, {count:,} keys: 95 %", _p95(times), "ms", PAGE,
            note=f"median {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms of {len(times)}")
        for family, times in took_ms.items()
    ]  # fmt: skip
    return [
        *pages,
        Row("console", f"the slowest of {sum(map(len, took_ms.values()))} first pages", max(map(max, took_ms.values())),
            "ms"),
        Row("console", f"first page of the family {FAMILIES[0]}, drawn in Chromium", drawn_ms, "ms", PAGE),
        Row("console", "reads beside it, another process", statistics.median(ratios), "times the time",
            None if quick else SLOWER, "the same reads without it",
            statistics.median(one.mean_us for one in beside), statistics.median(one.mean_us for one in alone)),
        Row("console", "the slowest 1 % of these reads", statistics.median(late_ratios), "times the time",
            None, "the same reads without it",
            statistics.median(one.p99_us for one in beside), statistics.median(one.p99_us for one in alone)),
    ]  # fmt: skip


def _p95(times: list[float]) -> float:
    return sorted(times)[math.ceil(len(times) * 0.95) - 1]


async def _draw(url: str, folder: Path) -> float:
    """Open one first page in Chromium, signed in with a link of its own. Milliseconds until it is drawn."""
    async with connect(f"sqlite:///{folder}/console.db") as store:
        secret = await ConsoleAccess(ConsoleKeys(store)).create_link("operator:bench", "viewer")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program("chromium-headless-shell", "chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page()
        await page.goto(f"{url}/console/enter#{secret}")
        await page.wait_for_url("**/console")
        await page.goto(f"{url}/console/family/BenchKeys/{FAMILIES[0]}")
        if not await page.locator("#main tbody tr").count():
            raise RuntimeError("Chromium shows no key")
        took = await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        await browser.close()
    return float(took)


@asynccontextmanager
async def _operator(url: str, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who is signed in to the console of a server of its own."""
    port, said = free_port(), folder / "console.txt"
    with said.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sysconfig.get_path("scripts")) / "keystead"), "console", "bench.doctor_keys:BenchKeys"),
            *("--store", url, "--store", f"console=sqlite:///{folder}/console.db", "--port", str(port)),
            cwd=ROOT, env=environment(), stdout=output, stderr=output,
        )  # fmt: skip
        try:
            link = await _link(said, process)
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"accept": "text/html"}) as web:
                await web.get("/console/enter")
                fields = {"csrf": web.cookies["csrf"], "secret": link.partition("#")[2]}
                entered = await web.post("/console/enter", data=fields, headers={"origin": str(web.base_url)})
                if entered.status_code != 303:
                    raise RuntimeError(f"the console did not open: {entered.status_code}")
                yield web
        finally:
            process.terminate()
            await process.wait()


async def _link(said: Path, process: asyncio.subprocess.Process) -> str:
    """The link that the server prints once it runs."""
    while process.returncode is None:
        text = said.read_text()  # noqa: ASYNC240 - nothing else runs
        found = re.search(r"http\S+/console/enter#\S+", text)
        if found and "is running" in text:
            return found[0]
        await asyncio.sleep(0.05)
    raise RuntimeError(f"the console did not start: {said.read_text()}")  # noqa: ASYNC240 - nothing else runs


async def _look_around(person: httpx2.AsyncClient, took_ms: dict[str, list[float]], seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for family, times in took_ms.items():
            began = time.perf_counter()
            page = await person.get(f"/console/family/BenchKeys/{family}")
            times.append((time.perf_counter() - began) * 1000)
            if page.status_code != 200:
                raise RuntimeError(f"the page of {family} is {page.status_code}")
            if 'href="/console/key/' not in page.text:
                raise RuntimeError(f"the page of {family} shows no key")
            await asyncio.sleep(THINKS_S if seconds > THINKS_S else 0)
