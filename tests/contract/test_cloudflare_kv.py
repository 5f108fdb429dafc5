"""Cloudflare KV keeps what it promises of the contract, and refuses the rest."""

import pytest

from keystead.errors import BadArgument
from keystead.stores import Store
from keystead.testing import StoreContract
from keystead.testing.contract.sample_texts import HOSTILE, hostile
from tests.servers import CloudflareServer

TOO_LONG = (HOSTILE["long"], HOSTILE["every byte"])  # for a name of 512 bytes; the second once it is escaped

pytestmark = pytest.mark.matrix  # each command is an HTTP request to a server in JavaScript


class TestCloudflareKv(StoreContract):
    large_batch = 350  # spans several requests

    @pytest.fixture
    def url(self, cloudflare: CloudflareServer) -> str:
        return cloudflare.url

    @hostile
    async def test_a_key_may_be_any_bytes(self, store: Store, text: bytes) -> None:
        if text not in TOO_LONG:
            await super().test_a_key_may_be_any_bytes(store, text)
            return
        for command in (("GET", text), ("SET", text, "x"), ("DEL", text)):
            with pytest.raises(BadArgument, match="more than 512 bytes"):
                await store.run([command])

    @hostile
    async def test_a_scan_finds_a_hostile_key_by_its_escaped_name(self, store: Store, text: bytes) -> None:
        if text not in TOO_LONG:
            await super().test_a_scan_finds_a_hostile_key_by_its_escaped_name(store, text)
