"""Prometheus metrics. Labels are route templates and names of families and procedures; never a key or a path.

Each worker writes its metrics to a shared folder (`PROMETHEUS_MULTIPROC_DIR`), and `/metrics` adds them up. Requests
and store calls are counted in memory first, and written every fifth of a second.
prometheus_client reads that variable when it is first imported, so only workers import this module.
"""

from __future__ import annotations

import asyncio
import os
import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final, Literal, NamedTuple

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

_WRITE_EVERY_S: Final = 0.2

NO_ROUTE: Final = "(refused)"  # the label of requests that were refused before routing

# Name, kind, labels and meaning. `docs/reference/http.md` is generated from this.
METRICS: Final = {
    "keystead_requests_total": ("counter", ("route", "method", "status"), "Completed requests."),
    "keystead_request_seconds": ("histogram", ("route", "method"), "Request duration, to the end of the response."),
    "keystead_requests_in_flight": ("gauge", (), "Requests in progress."),
    "keystead_store_calls_total": (
        "counter",
        ("family", "procedure", "outcome"),
        "Store calls of kits, with the procedure if any; the outcome is ok, unavailable or error.",
    ),
    "keystead_store_call_seconds": ("histogram", ("family", "procedure"), "Duration of store calls."),
    "keystead_near_reads_total": (
        "counter",
        ("outcome",),
        "Near reads; the outcome is hit, from a copy in the process, or miss.",
    ),
    "keystead_kit_events_total": (
        "counter",
        ("kit", "event", "outcome"),
        "Events of kits, such as logins and refreshes of provider tokens.",
    ),
    "keystead_job_runs_total": (
        "counter",
        ("job", "outcome"),
        "Job runs; the outcome is done, failed, stopped or lost.",
    ),
    "keystead_info": ("gauge", ("version", "mode"), "Always 1; the labels have the version and mode."),
}


class StoreCalls(NamedTuple):
    """Store calls of a family and a procedure, since the start of the server.

    procedure   "": calls outside of procedures
    p95_s       95 % took at most this long, to the next bucket of the histogram
    """

    family: str
    procedure: str
    calls: int
    failed: int
    total_s: float
    p95_s: float


class _Seconds(Histogram):
    def observe_many(self, total: float, buckets: list[int]) -> None:
        """As `observe` for each; `buckets` has the number of observations in each bucket."""
        self._sum.inc(total)
        for bucket, number in zip(self._buckets, buckets, strict=True):
            if number:
                bucket.inc(number)


class _Tally:
    """Events of one set of labels that are not written yet, with their durations if they have any."""

    __slots__ = ("_buckets", "_counter", "_number", "_seconds", "_total_s")

    def __init__(self, counter: Counter, seconds: _Seconds | None = None) -> None:
        self._counter = counter
        self._seconds = seconds
        self._reset()

    def _reset(self) -> None:
        self._number = 0
        self._total_s = 0.0
        self._buckets = [0] * (len(_SECONDS) + 1)

    def add(self, seconds: float = 0.0) -> bool:
        """Whether this is the first one since it was written."""
        self._number += 1
        self._total_s += seconds
        self._buckets[bisect_left(_SECONDS, seconds)] += 1
        return self._number == 1

    def write(self) -> None:
        self._counter.inc(self._number)
        if self._seconds is not None:
            self._seconds.observe_many(self._total_s, self._buckets)
        self._reset()


class Metrics:
    """The metrics of one application."""

    def __init__(self, mode: str) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("keystead_requests_total")
        self._seconds = self._histogram("keystead_request_seconds")
        self._in_flight = self._gauge("keystead_requests_in_flight", "livesum")
        self._calls = self._counter("keystead_store_calls_total")
        self._call_seconds = self._histogram("keystead_store_call_seconds")
        # There are few labels, so these stay small.
        self._by_route: dict[tuple[str, str, int], _Tally] = {}
        self._by_family: dict[tuple[str, str, str], _Tally] = {}
        self._by_event: dict[tuple[str, str, str], _Tally] = {}
        self._unwritten: list[_Tally] = []
        self._requests_now = 0
        self._is_waiting = False  # until it is time to write
        near = self._counter("keystead_near_reads_total")
        self._near_hits, self._near_misses = near.labels("hit"), near.labels("miss")
        self._near_reads: dict[int, tuple[NearReads, int, int]] = {}  # with the numbers counted so far
        self._events = self._counter("keystead_kit_events_total")
        self._runs = self._counter("keystead_job_runs_total")
        self._gauge("keystead_info", "max").labels(keystead.__version__, mode).set(1)
        self._folder = os.environ.get(FOLDER_VARIABLE)
        if self._folder and os.name == "posix":
            _forget_dead_workers(Path(self._folder))

    def _counter(self, name: str) -> Counter:
        return Counter(*_arguments_of(name), registry=self._registry)

    def _histogram(self, name: str) -> _Seconds:
        return _Seconds(*_arguments_of(name), registry=self._registry, buckets=_SECONDS)

    def _gauge(self, name: str, mode: Literal["livesum", "max"]) -> Gauge:
        return Gauge(*_arguments_of(name), registry=self._registry, multiprocess_mode=mode)

    def count_begun(self) -> None:
        self._requests_now += 1
        if not self._is_waiting:
            self._write_soon()

    def count_finished(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests_now -= 1
        self._add(self._by_route.get((route, method, status)) or self._tally_of(route, method, status), seconds)

    def count_refused(self, method: str, status: int) -> None:
        """A request that was refused before anything was done for it."""
        found = self._by_route.get((NO_ROUTE, method, status))
        if found is None:
            found = _Tally(self._requests.labels(NO_ROUTE, method, str(status)))
            self._by_route[NO_ROUTE, method, status] = found
        self._add(found)

    def _tally_of(self, route: str, method: str, status: int) -> _Tally:
        made = _Tally(self._requests.labels(route, method, str(status)), self._seconds.labels(route, method))
        self._by_route[route, method, status] = made
        return made

    def count_call(self, family: str, procedure: str, outcome: str, seconds: float) -> None:
        found = self._by_family.get((family, procedure, outcome))
        if found is None:
            labels = self._calls.labels(family, procedure, outcome), self._call_seconds.labels(family, procedure)
            found = self._by_family[family, procedure, outcome] = _Tally(*labels)
        self._add(found, seconds)

    def _add(self, tally: _Tally, seconds: float = 0.0) -> None:
        if tally.add(seconds):
            self._unwritten.append(tally)
        if not self._is_waiting:
            self._write_soon()

    def _write_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self.write)
        except RuntimeError:  # no event loop runs
            self.write()
        else:
            self._is_waiting = True

    def write(self) -> None:
        """Write what was counted, for other processes to see."""
        self._is_waiting = False
        self._in_flight.set(self._requests_now)
        unwritten, self._unwritten = self._unwritten, []
        for one in unwritten:
            one.write()

    def count_near(self, near: NearReads) -> None:
        """Add the near reads since the last call. Counting each would cost more than the read itself."""
        _, hits, misses = self._near_reads.get(id(near), (near, 0, 0))
        if near.hits != hits or near.misses != misses:
            self._near_hits.inc(near.hits - hits)
            self._near_misses.inc(near.misses - misses)
        self._near_reads[id(near)] = near, near.hits, near.misses

    def count_event(self, kit: str, event: str, outcome: str) -> None:
        found = self._by_event.get((kit, event, outcome))
        if found is None:
            found = self._by_event[kit, event, outcome] = _Tally(self._events.labels(kit, event, outcome))
        self._add(found)

    def count_run(self, job: str, outcome: str) -> None:
        self._runs.labels(job, outcome).inc()

    def page(self) -> bytes:
        """The body of `/metrics`: the metrics of all workers."""
        for near, _, _ in list(self._near_reads.values()):
            self.count_near(near)
        return generate_latest(self._of_all_workers())

    def store_calls(self) -> list[StoreCalls]:
        """Store calls by family and procedure, of all workers, most time first."""
        found: dict[tuple[str, str], StoreCalls] = {}
        buckets: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for metric in self._of_all_workers().collect():
            for name, labels, value in ((one.name, one.labels, one.value) for one in metric.samples):
                place = labels.get("family", ""), labels.get("procedure", "")
                known = found.get(place, StoreCalls(*place, 0, 0, 0.0, 0.0))
                if name == "keystead_store_calls_total":
                    failed = 0 if labels["outcome"] == "ok" else int(value)
                    found[place] = known._replace(calls=known.calls + int(value), failed=known.failed + failed)
                elif name == "keystead_store_call_seconds_sum":
                    found[place] = known._replace(total_s=value)
                elif name == "keystead_store_call_seconds_bucket":
                    buckets.setdefault(place, []).append((float(labels["le"]), value))
        measured = [one._replace(p95_s=_quantile(buckets.get(place, []), 0.95)) for place, one in found.items()]
        return sorted((one for one in measured if one.calls), key=lambda one: -one.total_s)

    def _of_all_workers(self) -> CollectorRegistry:
        self.write()
        if not self._folder:
            return self._registry
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together, self._folder)  # type: ignore[no-untyped-call]
        return together


def _quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    """The upper end of the bucket that this share of observations reaches; of the last one, that of the one before."""
    ordered = sorted(buckets)
    total = ordered[-1][1] if ordered else 0
    ends = [end for end, _ in ordered if end != inf]
    return next((end for end, number in ordered if number >= share * total and end != inf), ends[-1] if ends else 0.0)


def _arguments_of(name: str) -> tuple[str, str, tuple[str, ...]]:
    _, labels, doc = METRICS[name]
    return name, doc, labels


def _forget_dead_workers(folder: Path) -> None:
    """Remove the in-flight gauges of killed workers; their counters stay."""
    for file in folder.glob("gauge_live*_*.db"):
        found = re.fullmatch(r"gauge_live\w*_(\d+)\.db", file.name)
        if found and int(found[1]) != os.getpid() and not _is_running(int(found[1])):
            with suppress(FileNotFoundError):  # another worker was faster
                file.unlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
