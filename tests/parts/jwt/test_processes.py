"""Real processes and restarts: a revoked token is refused by all of them from the next request on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from keystead import connect
from keystead.errors import DoesNotFit
from keystead.parts.jwt import RevokedTokens, SigningKeys
from tests import forking, servers
from tests.every_store import on_urls, urls
from tests.parts.jwt.worker import WorkerKeys
from tests.serving import environment

__all__ = ["urls"]

ROOT = Path(__file__).parents[3]


class Process:
    """One process; each line that it is given it answers."""

    def __init__(self, talk: forking.Talk) -> None:
        self._talk = talk

    def does(self, verb: str, what: str) -> str:
        print(verb, what, file=self._talk.stdin, flush=True)
        answer = self._talk.stdout.readline().strip()
        if not answer:
            self._talk.stderr.seek(0)
            pytest.fail(f"the process ended: {self._talk.stderr.read()}")
        return answer

    def killed(self) -> None:
        self._talk.command.kill()
        self._talk.command.wait()


Start = Callable[[str], Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes on a store. All have the same keys."""
    keys = f"k1:{SigningKeys.new_key('EdDSA')}"
    with ExitStack() as ends:

        def started(url: str) -> Process:
            talking = forking.talking("tests.parts.jwt.worker", [url, keys], ROOT, environment())
            return Process(ends.enter_context(talking))

        yield started


@on_urls("sqlite", "redis", "cluster", "postgres", "mariadb")
def test_a_token_that_one_process_ended_is_refused_by_another_from_its_next_request_on(
    urls: dict[str, str], start: Start
) -> None:
    one, other = start(urls["default"]), start(urls["default"])
    token, second = one.does("issue", "ann"), one.does("issue", "ann")
    assert other.does("ask", token) == other.does("ask", second) == "ann"
    assert one.does("end", token) == "True"
    assert other.does("ask", token) == "revoked"
    assert other.does("ask", second) == "ann"
    assert one.does("end-all", "ann") == "ended"
    assert other.does("ask", second) == "revoked"
    assert one.does("ask", one.does("issue", "ann")) == "ann"  # the next login


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_neither_a_killed_process_nor_a_store_that_was_killed_makes_a_token_good_again(
    kind: str, tmp_path: Path, start: Start
) -> None:
    with ExitStack() as ends:
        server = None
        if kind == "redis":
            server = ends.enter_context(servers.redis("--appendonly", "yes", "--appendfsync", "always"))
        url = f"sqlite:///{tmp_path}/kept.db" if server is None else server.url
        first = start(url)
        one, all_of_bob, good = (first.does("issue", who) for who in ("ann", "bob", "eve"))
        assert first.does("end", one) == "True"
        assert first.does("end-all", "bob") == "ended"
        first.killed()
        if server is not None:
            server.restart()
        second = start(url)
        assert [second.does("ask", token) for token in (one, all_of_bob, good)] == ["revoked", "revoked", "eve"]


async def test_a_redis_without_persistence_is_refused_unless_allowed() -> None:
    with servers.redis() as server:
        async with connect(server.url) as store:
            keys = WorkerKeys(store)
            with pytest.raises(DoesNotFit, match="may_forget"):
                RevokedTokens(keys.revoked, keys.since)
        server.ask("CONFIG", "SET", "appendonly", "yes")
        async with connect(server.url) as store:
            keys = WorkerKeys(store)
            RevokedTokens(keys.revoked, keys.since)
