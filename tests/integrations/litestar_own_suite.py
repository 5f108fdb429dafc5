"""Run Litestar's own tests of stores against `KeysteadStore`: `python litestar_own_suite.py SOURCE URL`.

SOURCE is the unpacked source distribution of Litestar 2.12, the last one that contains its tests. URL is that of a
store; with `memory://` all tests of stores run, by a clock that travels, with another one those in which no time
passes. Prints a JSON object: how many tests ran, and which failed.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from keystead.integrations.litestar import KeysteadStore
from keystead.testing import TravellingClock

OF_OTHER_STORES = "redis or file or memory_delete_expired"


class Suite:
    """A plugin of pytest that gives our store to the tests, and counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = TravellingClock()
        self.outcomes: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def store(self) -> AsyncIterator[KeysteadStore]:
        if self.url != "memory://":
            yield KeysteadStore(self.url, uuid.uuid4().hex)
            return
        async with self.clock.store() as opened:
            yield KeysteadStore(opened)

    redis_store = file_store = store

    @pytest.fixture
    def memory_store(self) -> KeysteadStore:
        return KeysteadStore(self.url)

    @pytest.fixture
    def frozen_datetime(self) -> SimpleNamespace:
        return SimpleNamespace(shift=lambda seconds: self.clock.travel(timedelta(seconds=seconds)))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # A fixture of Litestar's gives this test once more with another of its stores.
        chosen = [one for one in items if "namespaced" not in one.name or "redis_store" in one.name]
        if self.url != "memory://":
            chosen = [one for one in chosen if "frozen_datetime" not in one.fixturenames]
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.split("::")[-1]
            self.outcomes[name] = report.outcome
            if report.failed:
                self.texts[name] = report.longreprtext[-600:]


def main(source: str, url: str) -> None:
    os.chdir(source)
    for name, imported in (("pytest_mock", "MockerFixture"), ("time_machine", "Coordinates")):
        if find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
            setattr(sys.modules[name], imported, object)
    suite = Suite(url)
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir", source]
    chosen = f"namespaced_store or not ({OF_OTHER_STORES})"
    pytest.main(
        [*options, "-o", "anyio_mode=auto", "-k", chosen, "--import-mode=importlib", "tests/unit/test_stores.py"],
        plugins=[suite],
    )
    skipped = sorted(name for name, outcome in suite.outcomes.items() if outcome == "skipped")
    print(json.dumps({"ran": len(suite.outcomes) - len(skipped), "skipped": skipped, "failed": suite.texts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
