"""The store on Upstash's REST API keeps the whole contract with our gateway to a real Redis, and with an independent
server whatever that one can do."""

import pytest

from keystead.errors import BadArgument, StoreRefused
from keystead.testing import StoreContract
from tests import servers

BYTES = "it returns text only, so that the store refuses bytes that are not UTF-8"
NUMBERS = "its JSON has numbers of JavaScript: beyond 2 ** 53 they are rounded"
MESSAGES = "it has no subscriptions"
# Why a test cannot pass there. Of a test with the sample texts, only these fail.
BINARY_SAMPLES = ("every byte", "not utf-8")
CANNOT = {
    **dict.fromkeys(
        (
            "test_members_stand_in_the_order_of_their_scores_then_of_their_bytes",
            "test_fields_and_values_may_be_any_bytes",
            "test_a_guard_compares_bytes_and_nothing_else",
            "test_prepared_steps_do_what_atomically_does_on_whatever_key",
            "test_a_guard_of_a_whole_value_goes_on_only_while_nobody_changed_it",
            "test_a_value_comes_back_as_it_was_put",
            "test_a_value_of_five_megabytes_or_the_largest_there_is_comes_back_whole",
            *(
                f"{test}[{sample}]"
                for test in (
                    "test_a_key_may_be_any_bytes",
                    "test_a_value_may_be_any_bytes",
                    "test_a_member_may_be_any_bytes",
                    "test_an_atomic_step_takes_any_bytes",
                    "test_a_scan_finds_a_hostile_key_by_its_escaped_name",
                )
                for sample in BINARY_SAMPLES
            ),
        ),
        BYTES,
    ),
    "test_a_counter_reaches_64_bits_and_no_further": NUMBERS,
    **dict.fromkeys(
        (
            "test_a_message_reaches_who_listens",
            "test_a_message_reaches_other_connections",
            "test_messages_come_in_the_order_they_were_published",
            "test_one_may_listen_to_several_channels_and_hears_no_others",
            "test_what_was_published_before_is_not_heard",
            "test_after_the_block_nobody_listens_any_more",
            "test_leaving_one_block_does_not_end_another",
            "test_a_reader_that_gives_up_may_read_on",
            "test_a_message_of_an_atomic_step_is_sent_when_it_takes_effect_and_only_then",
        ),
        MESSAGES,
    ),
}

pytestmark = pytest.mark.matrix  # what Redis keeps, over HTTP


class TestUpstash(StoreContract):
    @pytest.fixture
    def url(self, upstash_gateway: servers.GatewayServer) -> str:
        upstash_gateway.empty()
        return upstash_gateway.upstash_url


class TestIndependentServer(StoreContract):
    @pytest.fixture(autouse=True)
    def known_limits(self, request: pytest.FixtureRequest) -> None:
        reason = CANNOT.get(request.node.name)
        if reason is not None:
            refusals = (BadArgument, StoreRefused, AssertionError)
            request.applymarker(pytest.mark.xfail(raises=refusals, strict=True, reason=reason))

    @pytest.fixture
    def url(self, npm_upstash_server: servers.NpmUpstashServer) -> str:
        npm_upstash_server.empty()
        return npm_upstash_server.url


def test_every_known_limit_is_a_test_of_the_contract() -> None:
    assert {name.partition("[")[0] for name in CANNOT} <= set(dir(StoreContract))
