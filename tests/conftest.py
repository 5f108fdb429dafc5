"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# How fast examples come tells of the machine, not of the code.
settings.register_profile("real-servers", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("real-servers")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only event loop that the stores support."""
    return "asyncio"
