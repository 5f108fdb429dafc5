"""Cloudflare KV, started once for each worker, and emptied before each test that uses it."""

import pytest

from tests.real_servers import cloudflare_server
from tests.servers import CloudflareServer

__all__ = ["cloudflare_server", "server"]


@pytest.fixture
def server(cloudflare_server: CloudflareServer) -> CloudflareServer:
    cloudflare_server.empty()
    return cloudflare_server
