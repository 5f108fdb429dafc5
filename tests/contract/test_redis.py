"""Redis keeps the contract. Where the same code meets the same server another way, only what can differ is repeated."""

import pytest

from keystead.testing import StoreContract
from keystead.testing.contract import Honesty
from keystead.testing.contract.atomic_contract import Atomic, AtomicOnOneKey
from keystead.testing.contract.caller_contract import Callers
from keystead.testing.contract.message_contract import Messages
from keystead.testing.contract.race_contract import Cancellation
from tests.servers import Server


class TestRedis(StoreContract):
    @pytest.fixture
    def url(self, redis: Server) -> str:
        return redis.url


class OverSocket:
    @pytest.fixture
    def url(self, redis: Server) -> str:
        return f"redis+unix://{redis.socket_path}"


class OnValkey:
    @pytest.fixture
    def url(self, valkey: Server) -> str:
        return valkey.url


class TestSocket(OverSocket, Honesty, Callers, Messages, Cancellation):
    """The connection is another one; the commands are those of TestRedis."""


class TestValkey(OnValkey, Honesty, Callers, Atomic, AtomicOnOneKey, Messages):
    """Its scripts and pushes; each command is held to the contract by the cluster, whose nodes are Valkey."""


@pytest.mark.matrix
class TestWholeContractOverSocket(OverSocket, StoreContract):
    """All of it."""


@pytest.mark.matrix
class TestWholeContractOnValkey(OnValkey, StoreContract):
    """All of it."""
