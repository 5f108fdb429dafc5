"""Prometheus metrics. Labels are route templates and names of families and procedures; never a key or a path.

Each worker writes its metrics to a shared folder (`PROMETHEUS_MULTIPROC_DIR`), and `/metrics` adds them up.
prometheus_client reads that variable when it is first imported, so only workers import this module.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

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

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# Name, kind, labels and meaning. A test compares docs/server.md with this.
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


class Metrics:
    """The metrics of one application."""

    def __init__(self, mode: str) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("keystead_requests_total")
        self._seconds = self._histogram("keystead_request_seconds")
        self._in_flight = self._gauge("keystead_requests_in_flight", "livesum")
        self._calls = self._counter("keystead_store_calls_total")
        self._call_seconds = self._histogram("keystead_store_call_seconds")
        self._by_family: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._events = self._counter("keystead_kit_events_total")
        self._runs = self._counter("keystead_job_runs_total")
        self._gauge("keystead_info", "max").labels(keystead.__version__, mode).set(1)
        self._folder = os.environ.get(FOLDER_VARIABLE)
        if self._folder and os.name == "posix":
            _forget_dead_workers(Path(self._folder))

    def _counter(self, name: str) -> Counter:
        return Counter(*_arguments_of(name), registry=self._registry)

    def _histogram(self, name: str) -> Histogram:
        return Histogram(*_arguments_of(name), registry=self._registry, buckets=_SECONDS)

    def _gauge(self, name: str, mode: Literal["livesum", "max"]) -> Gauge:
        return Gauge(*_arguments_of(name), registry=self._registry, multiprocess_mode=mode)

    def began(self) -> None:
        self._in_flight.inc()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._in_flight.dec()
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def count_call(self, family: str, procedure: str, outcome: str, seconds: float) -> None:
        found = self._by_family.get((family, procedure, outcome))
        if found is None:  # cached, because a lookup by labels is slow
            found = self._calls.labels(family, procedure, outcome), self._call_seconds.labels(family, procedure)
            self._by_family[family, procedure, outcome] = found
        calls, call_seconds = found
        calls.inc()
        call_seconds.observe(seconds)

    def count_event(self, kit: str, event: str, outcome: str) -> None:
        self._events.labels(kit, event, outcome).inc()

    def count_run(self, job: str, outcome: str) -> None:
        self._runs.labels(job, outcome).inc()

    def page(self) -> bytes:
        """The body of `/metrics`: the metrics of all workers."""
        if not self._folder:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(together)


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
