"""Several processes: one device per user, one provider request, one successor of a refresh token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.kits.membership import Members
from keystead.kits.membership.service import Ledger
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests import forking
from tests.every_store import on_urls, urls
from tests.kits.membership.conftest import FakePatreon, refusal, rows, signed_in, works
from tests.serving import environment

__all__ = ["urls"]

ROOT = Path(__file__).parents[3]

Together = Callable[[], Awaitable[list[str]]]


@pytest.fixture
def clock() -> Callable[[], int]:
    """The real clock, as in the processes."""
    from tests.kits.membership.worker import now_ms

    return now_ms


@pytest.fixture
async def store(urls: dict[str, str]) -> AsyncIterator[Store]:
    async with connect(urls["default"]) as opened:
        yield opened


class Crowd:
    """Processes that run their parts concurrently."""

    def __init__(self, store_url: str, patreon: FakePatreon, folder: Path) -> None:
        self._arguments = (store_url, patreon.server.url, f"sqlite:///{folder}/tables.db")
        self._stack = ExitStack()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def begin(self, *parts: tuple[str, int, str]) -> Together:
        """Start a process for each part (what, how often, with which token), and release them together."""

        def started() -> list[forking.Talk]:
            found = []
            for what, count, token in parts:
                arguments = (what, *self._arguments, str(count), *([token] if token else []))
                module = "tests.kits.membership.worker"
                found.append(self._stack.enter_context(forking.talking(module, arguments, ROOT, environment())))
            for process in found:  # all are up before the first one begins
                line = process.stdout.readline()
                assert line == "ready\n", _said(process)
            for process in found:
                process.stdin.write("go\n")
                process.stdin.flush()
            return found

        def ended(processes: list[forking.Talk]) -> list[str]:
            lines = [process.stdout.read() for process in processes]
            for process in processes:
                assert process.command.wait(300) == 0, _said(process)
            return [one for line in lines for one in json.loads(line)]

        processes = await asyncio.to_thread(started)
        return lambda: asyncio.to_thread(ended, processes)

    async def do(self, *parts: tuple[str, int, str]) -> list[str]:
        return await (await self.begin(*parts))()


def _said(process: forking.Talk) -> str:
    process.stderr.seek(0)
    return process.stderr.read()


@pytest.fixture
async def crowd(urls: dict[str, str], patreon: FakePatreon, tmp_path: Path) -> AsyncIterator[Crowd]:
    with Crowd(urls["default"], patreon, tmp_path) as made:
        yield made


@on_urls("sqlite", "redis", "cluster", "postgres", "mariadb")
async def test_fifty_sign_ins_in_two_processes_leave_one_session_that_works(
    members: Members, crowd: Crowd, store: Store
) -> None:
    tokens = await crowd.do(("sign-in", 25, ""), ("sign-in", 25, ""))
    assert len(set(tokens)) == 50
    found = [await works(members, token) for token in tokens]
    assert found.count(True) == 1
    held = await members.keys.user_token("123").get()
    assert held is not None
    assert [key.values["sessionToken"] async for key in members.keys.session.scan()] == held.session_tokens


@on_urls("sqlite", "redis")
async def test_a_thousand_requests_in_four_processes_ask_the_provider_once(
    members: Members, crowd: Crowd, patreon: FakePatreon
) -> None:
    token = await signed_in(members)
    await members.keys.membership("123").delete()  # as after its hour
    asked, tell = patreon.questions, patreon.holds()
    together = await crowd.begin(*[("validate", 250, token)] * 4)
    await patreon.server.until_asked("/identity", asked + 1)
    tell()
    assert await together() == ["Pro"] * 1000
    assert patreon.questions == asked + 1


@on_urls("sqlite", "redis", "cluster", "postgres", "mariadb")
async def test_twenty_uses_of_a_refresh_token_in_two_processes_get_one_successor(
    members: Members, crowd: Crowd
) -> None:
    first = await members.token_pairs.issue(await signed_in(members))
    found = await crowd.do(*[("refresh", 10, first.refresh_token)] * 2)
    [successor] = set(found)
    assert successor != first.refresh_token
    # A client that lost the response retries with the old token; one that got it uses the new token.
    assert (await members.token_pairs.refresh(first.refresh_token)).refresh_token == successor
    third = (await members.token_pairs.refresh(successor)).refresh_token
    assert await refusal(members.token_pairs.refresh(first.refresh_token)) == "INVALID_REFRESH_TOKEN"
    assert await refusal(members.token_pairs.refresh(third)) == "INVALID_REFRESH_TOKEN"


@on_urls("sqlite", "redis", "cluster", "postgres", "mariadb")
async def test_tokens_issued_during_a_logout_are_cleaned_up(members: Members, crowd: Crowd, store: Store) -> None:
    token = await signed_in(members)
    found = await crowd.do(("tokens", 20, token), ("logout", 1, token))
    assert found[-1] == "True"
    assert not await works(members, token)
    assert await rows(store) == set()


@pytest.mark.matrix
@on_urls("sqlite", "redis", "cluster")
async def test_reuse_in_one_process_revokes_access_tokens_in_the_others(members: Members, crowd: Crowd) -> None:
    first = await members.token_pairs.issue(await signed_in(members))
    second = await members.token_pairs.refresh(first.refresh_token)
    third = await members.token_pairs.refresh(second.refresh_token)
    assert await crowd.do(*[("entitled", 25, third.access_token)] * 2) == ["Pro"] * 50
    found = await crowd.do(("refresh", 1, first.refresh_token), ("refresh", 50, third.refresh_token))
    assert found[0] == "INVALID_REFRESH_TOKEN"
    for pair in (first, second, third):
        assert set(await crowd.do(*[("entitled", 25, pair.access_token)] * 2)) == {"SESSION_INVALID"}
    assert await refusal(members.token_pairs.refresh(third.refresh_token)) == "INVALID_REFRESH_TOKEN"


@on_urls("sqlite", "redis")
async def test_fifty_events_reported_by_three_processes_count_once_each(
    members: Members, crowd: Crowd, tmp_path: Path
) -> None:
    found = await crowd.do(*[("use", 50, "")] * 3)
    assert (found.count("True"), found.count("False")) == (50, 100)
    async with open_tables(f"sqlite:///{tmp_path}/tables.db", MEMBERSHIP_TABLES) as tables:
        assert (await Ledger(tables).status("123", "Pro", members.keys.now_ms())).tokens_used == 50
