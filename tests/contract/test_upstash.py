"""The store on Upstash's REST API keeps the whole contract, in front of our gateway on a real Redis."""

import pytest

from keystead.testing import StoreContract
from tests import servers


class TestUpstash(StoreContract):
    @pytest.fixture
    def url(self, upstash_gateway: servers.GatewayServer) -> str:
        upstash_gateway.empty()
        return upstash_gateway.upstash_url
