"""Any sequence of uses, lost responses, waits, logouts and thefts, compared with a model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from keystead import Store, connect
from keystead.parts.refresh import Retried, Rotated, RotationRefused
from tests.parts.refresh.conftest import DAY_MS, GRACE_MS, App, Clock

T = TypeVar("T")


class Clients(RuleBasedStateMachine):
    """A client that keeps its last token, and attackers who may have seen any token."""

    runner: ClassVar[asyncio.Runner]
    store: ClassVar[Store]  # one for all examples: each has a chain and a session of its own

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.app = App(self.store, self.clock)
        self.do(self.app.log_in())
        begun = self.do(self.app.begin())
        # What the model knows: all tokens by generation, when the last but one was used, and how the chain ended.
        self.minted = [begun.token]
        self.used_ms = 0
        self.ends_ms = self.clock() + 30 * DAY_MS
        self.reused = self.gone = self.logged_out = False
        # What the client knows: its token, and since when it waits for an answer.
        self.held = 0
        self.asked_ms: int | None = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def expected(self, generation: int) -> type | RotationRefused:
        newest = len(self.minted) - 1
        if self.gone:
            return RotationRefused("unknown")
        if self.reused:
            return RotationRefused("reused", "ended")
        if self.clock() >= self.ends_ms:
            return RotationRefused("expired")
        if generation < newest - 1:
            return RotationRefused("reused", "stale")
        if generation == newest - 1 and self.clock() >= self.used_ms + GRACE_MS:
            return RotationRefused("reused", "late")
        if self.logged_out:
            return RotationRefused("session")
        return Retried if generation == newest - 1 else Rotated

    def present(self, generation: int) -> Rotated[Any] | Retried[Any] | RotationRefused:
        wanted = self.expected(generation)
        found = self.do(self.app.tokens.rotate(self.minted[generation]))
        if isinstance(wanted, RotationRefused):
            assert found == wanted
        else:
            assert type(found) is wanted
        if isinstance(found, Rotated):
            self.minted.append(found.token)
            self.used_ms = self.clock()
        elif isinstance(found, Retried):
            assert found.token == self.minted[generation + 1]
        elif found.reason == "reused":
            self.reused = True
        elif found.reason == "session":
            self.gone = True
        return found

    @rule(is_lost=st.booleans())
    def the_client_uses_its_token(self, is_lost: bool) -> None:
        found = self.present(self.held)
        if not found:
            return
        if is_lost:
            self.asked_ms = self.clock() if self.asked_ms is None else self.asked_ms
        else:
            self.held, self.asked_ms = self.held + 1, None

    @precondition(lambda self: self.asked_ms is not None)
    @rule()
    def the_client_retries_in_time(self) -> None:
        """The purpose of retries: within the grace, and without attackers, a retry always works."""
        alone = self.held >= len(self.minted) - 2
        alive = not (self.reused or self.gone or self.logged_out) and self.clock() < self.ends_ms
        in_time = self.asked_ms is not None and self.clock() < self.asked_ms + GRACE_MS
        found = self.present(self.held)
        if alone and alive and in_time:
            assert found
        if found:
            self.held, self.asked_ms = self.held + 1, None

    @rule(pick=st.integers(0, 1_000))
    def somebody_uses_any_token_there_was(self, pick: int) -> None:
        self.present(pick % len(self.minted))

    @rule(ms=st.sampled_from([1, 1_000, GRACE_MS - 1, GRACE_MS, DAY_MS, 29 * DAY_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.pass_ms(ms)

    @rule()
    def the_session_ends(self) -> None:
        self.do(self.app.log_out())
        self.logged_out = True

    @rule(pick=st.integers(0, 1_000))
    def the_chain_is_revoked(self, pick: int) -> None:
        assert self.do(self.app.tokens.revoke(self.minted[pick % len(self.minted)])) is not self.gone
        self.gone = True

    @invariant()
    def each_generation_is_one_token(self) -> None:
        assert len(set(self.minted)) == len(self.minted)


@pytest.mark.matrix
def test_clients_and_attackers_match_the_model() -> None:
    with asyncio.Runner() as Clients.runner:
        Clients.store = connect("memory://")
        Clients.runner.run(Clients.store.open())
        try:
            run_state_machine_as_test(Clients, settings=settings(max_examples=100, stateful_step_count=25))
        finally:
            Clients.runner.run(Clients.store.close())
