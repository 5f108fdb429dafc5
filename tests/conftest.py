"""What all tests share."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import httpcore2
import pytest
from hypothesis import HealthCheck, settings
from playwright.async_api import Browser, async_playwright
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.serving import program

# What is compiled is kept, whatever the machine is set to: each process that a test starts would compile it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

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

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.startswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only event loop that the stores support."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each client of HTTP would read all certificates of the machine, which takes longer than most tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


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
