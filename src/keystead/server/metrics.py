"""Metrics for Prometheus. Labels are templates of routes, and names of families and procedures; never a key or a path.

With several workers each writes its numbers to a folder that they share (`PROMETHEUS_MULTIPROC_DIR`), and whichever is
asked adds them up. prometheus_client looks for that folder when it is first imported, so this module is imported by
workers only.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

import keystead
from keystead.stores.near_reads import NearReads

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

NO_ROUTE: Final = "(refused)"  # the label of requests that were refused before a route was looked for

# Name, kind, labels and meaning of each: the list in docs/server.md is held to this one.
METRICS: Final = {
    "keystead_requests_total": ("counter", ("route", "method", "status"), "Requests that were answered."),
    "keystead_request_seconds": ("histogram", ("route", "method"), "How long requests took, to the end of the answer."),
    "keystead_requests_in_flight": ("gauge", (), "Requests under way."),
    "keystead_store_calls_total": (
        "counter",
        ("family", "procedure", "outcome"),
        "Calls of kits to their stores, with the procedure if one made it; the outcome is ok, unavailable or error.",
    ),
    "keystead_store_call_seconds": ("histogram", ("family", "procedure"), "How long calls to stores took."),
    "keystead_near_reads_total": (
        "counter",
        ("outcome",),
        "Near reads; the outcome is hit, from a copy in the process, or miss.",
    ),
    "keystead_kit_events_total": (
        "counter",
        ("kit", "event", "outcome"),
        "What happened in kits, such as logins and refreshes of providers' tokens.",
    ),
    "keystead_job_runs_total": (
        "counter",
        ("job", "outcome"),
        "Runs of jobs; the outcome is done, failed, stopped or lost.",
    ),
    "keystead_info": ("gauge", ("version", "mode"), "1; its labels say what runs."),
}


class Metrics:
    """The metrics of one application."""

    def __init__(self, mode: str) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(*self._arguments_of("keystead_requests_total"), registry=self._registry)
        self._seconds = Histogram(
            *self._arguments_of("keystead_request_seconds"), registry=self._registry, buckets=_SECONDS
        )
        self._in_flight = Gauge(
            *self._arguments_of("keystead_requests_in_flight"), registry=self._registry, multiprocess_mode="livesum"
        )
        self._calls = Counter(*self._arguments_of("keystead_store_calls_total"), registry=self._registry)
        self._call_seconds = Histogram(
            *self._arguments_of("keystead_store_call_seconds"), registry=self._registry, buckets=_SECONDS
        )
        # To find a metric by its labels takes longest, so each is looked up once. Labels are few, so these stay small.
        self._by_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._by_family: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._by_event: dict[tuple[str, str, str], Counter] = {}
        near = Counter(*self._arguments_of("keystead_near_reads_total"), registry=self._registry)
        self._near_hits, self._near_misses = near.labels("hit"), near.labels("miss")
        self._near_reads: dict[int, tuple[NearReads, int, int]] = {}  # with the numbers that are counted already
        self._events = Counter(*self._arguments_of("keystead_kit_events_total"), registry=self._registry)
        self._runs = Counter(*self._arguments_of("keystead_job_runs_total"), registry=self._registry)
        info = Gauge(*self._arguments_of("keystead_info"), registry=self._registry, multiprocess_mode="max")
        info.labels(keystead.__version__, mode).set(1)
        self._folder = os.environ.get(FOLDER_VARIABLE)
        if self._folder and os.name == "posix":
            _forget_dead_workers(Path(self._folder))

    @staticmethod
    def _arguments_of(name: str) -> tuple[str, str, tuple[str, ...]]:
        _, labels, doc = METRICS[name]
        return name, doc, labels

    def began(self) -> None:
        self._in_flight.inc()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._in_flight.dec()
        found = self._by_route.get((route, method, status))
        if found is None:
            found = self._requests.labels(route, method, str(status)), self._seconds.labels(route, method)
            self._by_route[route, method, status] = found
        requests, request_seconds = found
        requests.inc()
        request_seconds.observe(seconds)

    def refused(self, method: str, status: int) -> None:
        """A request that was refused before anything was done for it."""
        found = self._by_route.get((NO_ROUTE, method, status))
        if found is None:
            found = self._requests.labels(NO_ROUTE, method, str(status)), self._seconds.labels(NO_ROUTE, method)
            self._by_route[NO_ROUTE, method, status] = found
        found[0].inc()

    def called(self, family: str, procedure: str, outcome: str, seconds: float) -> None:
        found = self._by_family.get((family, procedure, outcome))
        if found is None:
            found = self._calls.labels(family, procedure, outcome), self._call_seconds.labels(family, procedure)
            self._by_family[family, procedure, outcome] = found
        calls, call_seconds = found
        calls.inc()
        call_seconds.observe(seconds)

    def count_near(self, near: NearReads) -> None:
        """Add the near reads since the last time. They take a microsecond each, so they are not counted one by one."""
        _, hits, misses = self._near_reads.get(id(near), (near, 0, 0))
        if near.hits != hits or near.misses != misses:
            self._near_hits.inc(near.hits - hits)
            self._near_misses.inc(near.misses - misses)
        self._near_reads[id(near)] = near, near.hits, near.misses

    def happened(self, kit: str, event: str, outcome: str) -> None:
        found = self._by_event.get((kit, event, outcome))
        if found is None:
            found = self._by_event[kit, event, outcome] = self._events.labels(kit, event, outcome)
        found.inc()

    def ran(self, job: str, outcome: str) -> None:
        self._runs.labels(job, outcome).inc()

    def page(self) -> bytes:
        """What `/metrics` answers: the numbers of all workers."""
        for near, _, _ in list(self._near_reads.values()):
            self.count_near(near)
        if not self._folder:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def _forget_dead_workers(folder: Path) -> None:
    """What a worker that was killed had under way is not under way any more; its counters stay."""
    for file in folder.glob("gauge_live*_*.db"):
        found = re.fullmatch(r"gauge_live\w*_(\d+)\.db", file.name)
        if found and int(found[1]) != os.getpid() and not _runs(int(found[1])):
            with suppress(FileNotFoundError):  # another worker was faster
                file.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
