"""What all tests share."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import httpcore2
import pytest
from hypothesis import HealthCheck, settings
from playwright.async_api import Browser, async_playwright
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.real_servers import Running
from tests.serving import program

# What is compiled is kept, whatever the machine is set to: each process that a test starts would compile it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Files of tests are kept in memory where there is room for them, unless TMPDIR names a place: thousands of databases
# are made whose every write waits for the disk. A process that is killed loses no less in memory than on a disk.
IN_MEMORY, ROOM = "/dev/shm", 2 << 30
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY

# How fast examples come tells of the machine, not of the code.
settings.register_profile("real-servers", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("real-servers")


# Files whose tests share a browser, a cluster or an application that takes seconds to start: with `--dist loadgroup`
# one worker runs all tests of such a file, and any other test goes to whoever is free.
TOGETHER = (
    "tests/browser/",
    "tests/integrations/",
    "tests/server/test_demo_provider.py",
    "tests/stores/copy/test_pairs.py",
    "tests/stores/redis/test_cluster",
    "tests/stores/redis/test_sentinel.py",
)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """By file where that saves time. (pytest-xdist 3.8 does not find its groups with pytest 9.2.)"""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._places: dict[Any, dict[str, int]] = {}

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.startswith(TOGETHER) else nodeid

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """What is done is forgotten: after each test, all that a worker has been given would be counted again."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        given = self.assigned_work[node]
        if all(given[scope].values()):
            del given[scope]

    def _assign_work_unit(self, node: Any) -> None:
        """As in the class above, which looks for the place of each test from the first one on."""
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = unit
        places = self._places_of(node)
        node.send_runtest_some([places[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def _places_of(self, node: Any) -> dict[str, int]:
        if node not in self._places:
            self._places[node] = {nodeid: at for at, nodeid in enumerate(self.registered_collections[node])}
        return self._places[node]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes millions of objects that all stay: nobody looks for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only event loop that the stores support."""
    return "asyncio"


@pytest.fixture(scope="session")
def running_servers() -> Iterator[Running]:
    """What tests.real_servers has started for this worker."""
    with ExitStack() as ends:
        yield Running(ends)


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each client of HTTP would read all certificates of the machine, which takes longer than most tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True)
def logs_stay_as_they_were() -> Iterator[None]:
    """Whoever leaves the log louder than it was has every test after it pay for each line."""
    before = logging.root.level, list(logging.root.handlers)
    yield
    assert (logging.root.level, logging.root.handlers) == before


# Of two lists of features the last one counts, so this has what Playwright switches off itself, and then what an
# address bar shows when somebody types: two pages for each tab, which cost more than most of ours.
SWITCHED_OFF = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A real Chromium, started once a file; each test has a tab of it, or a context of its own."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox", f"--disable-features={','.join(SWITCHED_OFF)}"]
        )
        try:
            yield started
        finally:
            await started.close()
