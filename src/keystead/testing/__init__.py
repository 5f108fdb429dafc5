"""For tests: a clock that travels, and the contract of third-party stores.

One class in a test module tests your store against the contract of all Keystead stores:

    import pytest
    from keystead.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            async with MyStore() as store:      # empty when the test starts
                yield store

        @pytest.fixture
        async def other(self):                  # a second connection to the same data, or None
            return None

A kind of value or an atomic step that `store.guarantees` does not promise must be refused; the contract tests that.
`machine_of` runs random commands on your store and on a real server, and compares the replies.
Needs `pip install "keystead[testing]"`.
"""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.extras import from_extra

with from_extra("testing", "keystead.testing"):
    import pytest

    # Before they are imported, so that failed assertions show the values.
    pytest.register_assert_rewrite("keystead.testing.contract", "keystead.testing.state_machine")

    from keystead.testing.contract import StoreContract, needs
    from keystead.testing.state_machine import StoreUnderTest, machine_of, oracle_on
    from keystead.testing.travelling_clock import TravellingClock

__all__ = ["StoreContract", "StoreUnderTest", "TravellingClock", "machine_of", "needs", "oracle_on"]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Subject": "StoreUnderTest"})
