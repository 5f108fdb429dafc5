"""Run the own tests of the `limits` library against Keystead: `python limits_own_suite.py SOURCE URL`.

SOURCE is its unpacked source distribution, URL that of a store. Prints a JSON object: how many tests ran, and which
failed. Its tests of servers that it starts in Docker, and of its other storages, are not among them.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from keystead.integrations.limits import AsyncKeysteadStorage, KeysteadStorage

SUITES = ("tests/test_storage.py", "tests/test_strategy.py", "tests/aio/test_storage.py", "tests/aio/test_strategy.py")
CLASSES = ("TestConcreteStorages", "TestFixedWindow", "TestSlidingWindow", "TestMovingWindow")


class Suite:
    """A plugin of pytest that gives our storage to the tests, and counts."""

    def __init__(self) -> None:
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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.removeprefix("tests/")
            self.outcomes[name] = report.outcome
            if report.failed:
                self.texts[name] = report.longreprtext[-600:]


def _ours(is_async: bool) -> tuple[str, type[Any]]:
    url = os.environ["SUITE_URL"]
    return (f"async+keystead+{url}", AsyncKeysteadStorage) if is_async else (f"keystead+{url}", KeysteadStorage)


def _without_fixtures() -> None:
    """What the tests import of packages for servers that are not run here."""
    for name in ("pytest_lazy_fixtures", "pymemcache", "pymongo", "valkey", "coredis"):
        if find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
    sys.modules["pytest_lazy_fixtures"].lf = lambda name: None  # type: ignore[attr-defined]


def main(source: str, url: str) -> None:
    os.environ["SUITE_URL"] = url
    os.chdir(source)
    sys.path.insert(0, source)
    _without_fixtures()
    import tests.utils as shared  # type: ignore[import-not-found]

    for prefix, is_async in (("", False), ("async_", True)):
        given = pytest.mark.parametrize(("uri", "args", "fixture"), [(_ours(is_async)[0], {}, None)], ids=["keystead"])
        for kind in ("all_storage", "moving_window_storage", "sliding_window_counter_storage"):
            setattr(shared, prefix + kind, given)
    suite = Suite()
    options = [
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
        "-o",
        "filterwarnings=",
    ]
    pytest.main([*options, "-o", "anyio_mode=auto", "-c", os.devnull, "--rootdir", source, *SUITES], plugins=[suite])
    skipped = sorted(name for name, outcome in suite.outcomes.items() if outcome == "skipped")
    print(json.dumps({"ran": len(suite.outcomes) - len(skipped), "skipped": skipped, "failed": suite.texts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
