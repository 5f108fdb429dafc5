"""Run Litestar's own tests of stores against `KeysteadStore`: `python litestar_own_suite.py SOURCE URL`.

SOURCE is the unpacked source distribution of Litestar 2.12, the last one that contains its tests. Prints a JSON object:
how many tests ran, and which failed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from keystead.integrations.litestar import KeysteadStore

OF_OTHER_STORES = "redis or file or memory_delete_expired"


class Waiting:
    """The clock of a real store is not to be shifted: it passes."""

    def shift(self, seconds: float) -> None:
        time.sleep(seconds)


class Suite:
    """A plugin of pytest that gives our store to the tests, and counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.outcomes: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def store(self) -> KeysteadStore:
        return KeysteadStore(self.url, uuid.uuid4().hex)

    redis_store = file_store = memory_store = store

    @pytest.fixture
    def frozen_datetime(self) -> Waiting:
        return Waiting()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # A fixture of Litestar's gives this test once more with another of its stores.
        items[:] = [one for one in items if "namespaced" not in one.name or "redis_store" in one.name]

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
