"""The store on Upstash's REST API keeps the whole contract with our gateway to a real Redis, and with an independent
server whatever that one can do."""

import pytest

from keystead.errors import BadArgument
from keystead.testing import StoreContract
from keystead.testing.contract.atomic_contract import Atomic
from keystead.testing.contract.caller_contract import Callers
from keystead.testing.contract.collection_contract import Hashes, Lists, Sets, SortedSets
from keystead.testing.contract.guard_contract import Guards
from keystead.testing.contract.lifetime_contract import Lifetimes
from keystead.testing.contract.race_contract import Cancellation, Races
from keystead.testing.contract.scan_contract import Scans
from keystead.testing.contract.string_contract import Errors
from tests import servers

# They store bytes that are not UTF-8.
WITH_BYTES = frozenset(
    {
        "test_members_stand_in_the_order_of_their_scores_then_of_their_bytes",
        "test_fields_and_values_may_be_any_bytes",
        "test_a_guard_compares_bytes_and_nothing_else",
        "test_prepared_steps_do_what_atomically_does_on_whatever_key",
        "test_a_guard_of_a_whole_value_goes_on_only_while_nobody_changed_it",
    }
)

pytestmark = pytest.mark.matrix  # what Redis keeps, over HTTP


class TestUpstash(StoreContract):
    @pytest.fixture
    def url(self, upstash_gateway: servers.GatewayServer) -> str:
        upstash_gateway.empty()
        return upstash_gateway.upstash_url


class OnIndependentServer:
    """It returns text only, so that the store refuses all other bytes, and has no subscriptions."""

    @pytest.fixture(autouse=True)
    def text_only(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in WITH_BYTES:
            request.applymarker(pytest.mark.xfail(raises=(BadArgument, AssertionError), strict=True))

    @pytest.fixture
    def url(self, npm_upstash_server: servers.NpmUpstashServer) -> str:
        npm_upstash_server.empty()
        return npm_upstash_server.url


class TestIndependentServer(OnIndependentServer, Callers, Cancellation, Guards, Hashes, Lists):
    """Replies of every shape, and scripts."""


class TestAllOnIndependentServer(OnIndependentServer, Atomic, Errors, Lifetimes, Races, Scans, Sets, SortedSets):
    """The rest of what it can do."""
