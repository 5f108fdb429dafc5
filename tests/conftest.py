"""What all tests share."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings
from playwright.async_api import Browser, async_playwright

from tests.serving import program

# How fast examples come tells of the machine, not of the code.
settings.register_profile("real-servers", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("real-servers")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only event loop that the stores support."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A real Chromium, started once a file; each test opens a context or a page of its own in it."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        try:
            yield started
        finally:
            await started.close()
