"""Widgets: round trips, `GET /api/visit` beside hand-written routes, and many widgets beside few.

The server, a bare FastAPI route, and one with the two commands of an increment take turns, each under Granian with one
worker.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import httpx2

from bench import many_widgets, serving, widget_apps, widget_keys
from bench.many_widgets import ME
from bench.measure import Effort, Progress, Row, Target
from bench.round_trips import CountingProxy, count_round_trips
from bench.widget_keys import TOKEN, counter_id, page, quick_hashes, visitors
from keystead.stores import connect
from tests import servers

ONE = Target("at most", 1)
MESSAGES = 20  # of the board, and entries of the ranking


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    return [
        *await _round_trips(quick=quick),
        *await throughput(effort, progress, quick=quick),
        *await many_widgets.run(folder, effort, progress, quick=quick),
    ]


# --- round trips -------------------------------------------------------------------------------------------


async def _round_trips(*, quick: bool) -> list[Row]:
    """The round trips of each action on a known widget: the median of several sequential calls."""
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(servers.redis())
        between = await stack.enter_async_context(count_round_trips(redis.port))
        store = await stack.enter_async_context(connect(between.url))
        widgets = await stack.enter_async_context(widget_keys.open_service(store))
        await stack.enter_async_context(quick_hashes())
        await widget_keys.fill_counters(widgets, 1, _no_progress)
        board = await widget_keys.fill_board(widgets, MESSAGES, _no_progress)
        ranking = await widget_keys.fill_ranking(widgets, MESSAGES, _no_progress)
        app = widget_apps.keystead(between.url)
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx2.ASGITransport(app=app)
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
        id, new, numbers = counter_id(0), visitors(), itertools.count()

        async def increment_by_http() -> None:
            headers = {"user-agent": f"browser {next(numbers)}"}
            answer = await client.get("/api/visit", params={"action": "increment", "id": id}, headers=headers)
            if answer.status_code != 200 or answer.json()["data"]["duplicate"]:
                raise RuntimeError(f"a visit was not counted: {answer.text}")

        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "GET /api/visit?action=increment, a known counter": increment_by_http,
            "increment, a new visitor": lambda: widgets.counters.increment(id, next(new)),
            "increment, a known visitor": lambda: widgets.counters.increment(id, ME),
            "get": lambda: widgets.counters.get(id, ME),
            "batchGet": lambda: widgets.counters.batch_get([id], visitor=ME),
            "create": lambda: widgets.counters.create(page(next(numbers) + 1), TOKEN, visitor=ME),
            "board, post": lambda: widgets.boards.post(board.id, next(new), "a message"),
            "board, get": lambda: widgets.boards.get(board.id, visitor=ME),
            "ranking, submit": lambda: widgets.rankings.submit(ranking, next(new), f"name {next(numbers):,}", 1),
            "ranking, get": lambda: widgets.rankings.get(ranking, visitor=ME),
        }
        times = 5 if quick else 50
        return [
            Row(
                "widgets, redis",
                f"round trips: {name}",
                await _trips(between, call, times),
                "round trips",
                ONE if "increment" in name else None,
            )
            for name, call in calls.items()
        ]


async def _trips(between: CountingProxy, call: Callable[[], Awaitable[object]], times: int) -> float:
    await call()  # the first call reads the record
    taken = []
    for _ in range(times):
        before = between.trips
        await call()
        taken.append(between.trips - before)
    return statistics.median(taken)


def _no_progress(steps: int = 1) -> None:
    pass


# --- throughput --------------------------------------------------------------------------------------------

PLAIN: Final = "FastAPI, a bare route"
BY_HAND: Final = "FastAPI, redis-py, SET NX and INCR"
LEAST: Final = "ASGI and hiredis by hand"
NEW: Final = "increment, new visitors"
KNOWN: Final = "increment, known visitors"
SHOWN: Final = "display as text"
COUNTERS, COUNTERS_QUICK = 1_000, 20
VISIT, READ = Target("at least", 1.5), Target("at least", 0.8)


async def throughput(effort: Effort, progress: Progress, *, quick: bool, turn_s: float = serving.TURN_S) -> list[Row]:
    counters = COUNTERS_QUICK if quick else COUNTERS
    async with AsyncExitStack() as stack:
        redis, plain = stack.enter_context(servers.redis()), stack.enter_context(servers.redis())
        first, rest = serving.cores()
        for server in (redis, plain):
            os.sched_setaffinity(server.pid, rest)
        store = await stack.enter_async_context(connect(redis.url))
        widgets = await stack.enter_async_context(widget_keys.open_service(store))
        await widget_keys.fill_counters(widgets, counters, _no_progress)
        apps = {"keystead": redis.url, "fastapi": plain.url, "fastapi-redis": plain.url, "asgi-redis": plain.url}
        starting = [
            stack.enter_async_context(
                serving.serve_app("bench.widget_apps:make", {"BENCH_APP": app, "BENCH_REDIS": url}, first)
            )
            for app, url in apps.items()
        ]
        ports = dict(zip(apps, [await one for one in starting], strict=True))
        new = [f"GET /api/visit?action=increment&id={counter_id(n)}\nUser-Agent: {{number}}" for n in range(counters)]
        known = [ask.replace("{number}", "a browser") for ask in new]
        shown = [f"GET /api/visit?action=display&id={counter_id(n)}&format=text" for n in range(counters)]
        wanted = {
            NEW: serving.Load(ports["keystead"], new, '"duplicate":'),
            KNOWN: serving.Load(ports["keystead"], known, '"duplicate":'),
            SHOWN: serving.Load(ports["keystead"], shown, "text/plain"),
            PLAIN: serving.Load(ports["fastapi"], known, '"total":'),
            f"{BY_HAND}, new": serving.Load(ports["fastapi-redis"], new, '"total":'),
            f"{BY_HAND}, known": serving.Load(ports["fastapi-redis"], known, '"total":'),
            f"{LEAST}, new": serving.Load(ports["asgi-redis"], new, '"total":'),
            f"{LEAST}, known": serving.Load(ports["asgi-redis"], known, '"total":'),
            f"{LEAST}, text": serving.Load(ports["asgi-redis"], shown, "200 OK"),
        }
        client = await stack.enter_async_context(serving.client(rest))
        turn_s = serving.TURN_S_QUICK if quick else turn_s
        with progress.activity("widgets · throughput", (effort.rounds + 1) * len(wanted)) as advance:
            times = await serving.rounds(client, wanted, effort.rounds, turn_s, advance)
    pairs = [
        (NEW, PLAIN, None), (NEW, f"{BY_HAND}, new", VISIT), (KNOWN, PLAIN, None),
        (KNOWN, f"{BY_HAND}, known", VISIT), (SHOWN, PLAIN, READ),
        # How far that could be: the same commands without framework, checks and headers.
        (f"{LEAST}, new", f"{BY_HAND}, new", None), (f"{LEAST}, known", f"{BY_HAND}, known", None),
        (f"{LEAST}, text", PLAIN, None),
    ]  # fmt: skip
    return [
        *(serving.ratio_row("widgets, http", ours, times[ours], times[theirs], theirs, target)
          for ours, theirs, target in pairs),
        *(Row("widgets, http", f"requests, {name}", 1 / statistics.median(one.seconds for one in took), "a second")
          for name, took in times.items()),
    ]  # fmt: skip
