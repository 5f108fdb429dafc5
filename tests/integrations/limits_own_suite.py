"""Run the own tests of the `limits` library against Keystead: `python limits_own_suite.py SOURCE URL`.

SOURCE is its unpacked source distribution, URL that of a store. With `memory://` all tests of storages and strategies
run, by a clock that stands still until a test sleeps. With another store, those that wait or compare times are left
out: they allow 30 ms, and a busy machine takes longer. Prints a JSON object: how many tests ran, and which failed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import sys
from datetime import timedelta
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import limits.aio.strategies
import limits.strategies
import pytest

from keystead.integrations.limits import AsyncKeysteadStorage, KeysteadStorage, limits_storage
from keystead.integrations.limits.limits_counts import LimitsCounts, LimitsKeys
from keystead.integrations.loop_stores import SharedStore
from keystead.testing import TravellingClock

SUITES = ("tests/test_storage.py", "tests/test_strategy.py", "tests/aio/test_storage.py", "tests/aio/test_strategy.py")
CLASSES = ("TestConcreteStorages", "TestFixedWindow", "TestSlidingWindow", "TestMovingWindow")
WAITS = ("sleep(", "window(", "approx(")


class VirtualTime:
    """The `time` and `asyncio` of the tests, and the stores, by one clock."""

    def __init__(self) -> None:
        self.clock = TravellingClock()
        self._stores: dict[Any, SharedStore] = {}

    def time(self) -> float:
        return self.clock() / 1000

    def sleep(self, seconds: float) -> None:
        self.clock.travel(timedelta(milliseconds=max(1, math.ceil(seconds * 1000))))

    async def asyncio_sleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def replace_in(self, module: Any) -> None:
        for name, replaced in (("time", self), ("asyncio", SimpleNamespace(sleep=self.asyncio_sleep))):
            if hasattr(module, name):
                setattr(module, name, replaced)

    def shared(self, url: str) -> SharedStore:
        return self._stores.setdefault(None, self._new())

    async def shared_of_loop(self, url: str) -> SharedStore:
        loop = asyncio.get_running_loop()
        if loop not in self._stores:
            self._stores[loop] = self._new()
            await self._stores[loop].store.open()
        return self._stores[loop]

    def _new(self) -> SharedStore:
        shared = SharedStore(self.clock.store())
        counts = shared.bind(LimitsCounts)
        counts.keys = LimitsKeys(shared.store, now_ms=self.clock)
        return shared


class Suite:
    """A plugin of pytest that gives our storage to the tests, and counts."""

    def __init__(self, virtual: VirtualTime | None) -> None:
        self.virtual = virtual
        self.outcomes: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def pytest_runtest_setup(self) -> None:
        KeysteadStorage(_ours(False)[0]).reset()

    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str, obj: Any) -> Any:
        if name == "TestConcreteStorages":
            scheme, kind = _ours("aio" in str(collector.path))
            names = "uri, args, expected_instance, fixture"
            obj.pytestmark = [pytest.mark.parametrize(names, [(scheme, {}, kind, None)], ids=["keystead"])]
        return [] if isinstance(obj, type) and name.startswith("Test") and name not in CLASSES else None

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.virtual is None:
            items[:] = [one for one in items if not any(word in inspect.getsource(one.obj) for word in WAITS)]
            return
        for module in {one.module for one in items}:
            self.virtual.replace_in(module)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.removeprefix("tests/")
            self.outcomes[name] = report.outcome
            if report.failed:
                self.texts[name] = report.longreprtext[-600:]


def _ours(is_async: bool) -> tuple[str, type[Any]]:
    url = os.environ["SUITE_URL"]
    return (f"async+keystead+{url}", AsyncKeysteadStorage) if is_async else (f"keystead+{url}", KeysteadStorage)


def _without_servers() -> None:
    """Replace what the tests import of packages for servers that are not run here."""
    for name in ("pytest_lazy_fixtures", "pymemcache", "pymongo", "valkey", "coredis"):
        if find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
    sys.modules["pytest_lazy_fixtures"].lf = lambda name: None  # type: ignore[attr-defined]


def main(source: str, url: str) -> None:
    os.environ["SUITE_URL"] = url
    os.chdir(source)
    sys.path.insert(0, source)
    _without_servers()
    import tests.utils as shared  # type: ignore[import-not-found]

    for prefix, is_async in (("", False), ("async_", True)):
        given = pytest.mark.parametrize(("uri", "args", "fixture"), [(_ours(is_async)[0], {}, None)], ids=["keystead"])
        for kind in ("all_storage", "moving_window_storage", "sliding_window_counter_storage"):
            setattr(shared, prefix + kind, given)
    virtual = VirtualTime() if url == "memory://" else None
    if virtual is not None:
        for module in (shared, limits.strategies, limits.aio.strategies):
            virtual.replace_in(module)
        limits_storage.synchronous_store = virtual.shared  # type: ignore[attr-defined]
        limits_storage.store_of_loop = virtual.shared_of_loop  # type: ignore[attr-defined]
    suite = Suite(virtual)
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "filterwarnings="]
    pytest.main([*options, "-o", "anyio_mode=auto", "-c", os.devnull, "--rootdir", source, *SUITES], plugins=[suite])
    skipped = sorted(name for name, outcome in suite.outcomes.items() if outcome == "skipped")
    print(json.dumps({"ran": len(suite.outcomes) - len(skipped), "skipped": skipped, "failed": suite.texts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
