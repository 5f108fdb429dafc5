"""Session data across processes, and a real server with stores from its settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import connect
from keystead.kits.sessiondata import SessionData, SessionDataKeys
from keystead.kits.sessiondata.service import guid_of
from tests import forking, servers
from tests.every_store import on_urls
from tests.kits.sessiondata.asking import KEY, VALUE
from tests.serving import Keystead, environment, keystead_serving

READER = Path(__file__).with_name("reader.py")


@pytest.mark.matrix
@on_urls("sqlite", "redis", "postgres", "mariadb")
async def test_one_of_fifty_readers_in_two_processes_gets_a_read_once_value(urls: dict[str, str]) -> None:
    async with connect(urls["default"]) as store:
        data = SessionData(SessionDataKeys(store))
        session_id = await data.begin()
        with ExitStack() as stack:
            readers = [stack.enter_context(_reader(urls["default"], session_id, 25)) for _ in range(2)]
            for process in readers:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            assert await data.session(session_id).set_once("Message", "saved") is True
            for process in readers:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            told = [process.communicate(timeout=300)[0] for process in readers]
        assert sorted(told) == ["0\n", "1\n"]
        assert await data.session(session_id).get("Message") is None


@contextmanager
def _reader(url: str, session_id: str, times: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(READER), url, session_id, str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# --- a server with stores from its settings ------------------------------------------------------------------


def _issue_key(folder: Path) -> str:
    """Issue an API key in the folder of the server, as an operator does."""
    issued = forking.run(("apikeys", "issue", "42", "a test"), folder, environment())
    assert issued.returncode == 0, issued.stderr
    return issued.stdout.strip()


async def _use_api(server: Keystead, token: str) -> str:
    """Call every route. Returns the id of the session."""
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:

        async def ask(verb: str, **body: object) -> Any:
            answer = await http.post(f"/API/sessions/{verb}", json={"ApiKey": token, **body})
            assert answer.status_code == 200, answer.text
            return answer.json()["Response"]

        guid: str = (await ask("Set", **VALUE))["SessionGuid"]
        http.cookies.clear()
        assert (await ask("Get", SessionGuid=guid, **KEY))["Value"] == "x"
        await ask("Set", SavePerUser=True, SessionKey="Theme", SessionValue="Dark")
        assert await ask("Get", SavePerUser=True, SessionKey="Theme") == {"UserId": 42, "Key": "Theme", "Value": "Dark"}
        await ask("Set", SavePerUser=True, SessionKey="Other", SessionValue="x")
        await ask("Delete", SavePerUser=True, SessionKey="Other")
    return guid


async def test_settings_alone_put_sessions_in_redis_and_users_in_postgresql(
    tmp_path: Path, redis_server: servers.Server, postgres_server: servers.PostgresServer
) -> None:
    redis_server.ask("FLUSHALL")
    postgres_server.empty()
    (tmp_path / "keystead.toml").write_text(
        f'kits = ["sessiondata"]\n[stores]\ndefault = "{redis_server.url}"\ndurable = "{postgres_server.url}"\n'
    )
    with keystead_serving(tmp_path) as server:
        guid = await _use_api(server, _issue_key(tmp_path))
    assert not any(name.endswith(".db") for name in os.listdir(tmp_path))
    assert redis_server.ask("HGET", guid_of(guid), "User%5FMy%5FKey") == b"x"
    assert redis_server.ask("EXISTS", "@42") == 0
    async with connect(postgres_server.url) as store:
        assert await store.run([("HGETALL", "@42"), ("EXISTS", guid_of(guid))]) == [{b"User_Theme": b"Dark"}, 0]


async def test_the_documents_own_files_do_the_same(
    tmp_path: Path,
    redis_server: servers.Server,
    postgres_server: servers.PostgresServer,
) -> None:
    """Turning UseKeyValueStore on later moves sessions to Redis, and leaves user data where it was."""
    redis_server.ask("FLUSHALL")
    postgres_server.empty()
    parameters = tmp_path / "App_Data" / "Parameters"
    parameters.mkdir(parents=True)
    (tmp_path / "keystead.toml").write_text(
        f'kits = ["sessiondata"]\nparameters = "App_Data/Parameters"\n[stores]\ndurable = "{postgres_server.url}"\n'
    )
    session = {"RetentionPeriod": 30, "UseKeyValueStore": False}
    (parameters / "Session.json").write_text(json.dumps(session))
    with keystead_serving(tmp_path) as server:
        token = _issue_key(tmp_path)
        guid = await _use_api(server, token)
    async with connect(postgres_server.url) as store:
        [left_ms] = await store.run([("PTTL", guid_of(guid))])
        assert 29 * 60_000 < left_ms <= 30 * 60_000
    assert redis_server.ask("DBSIZE") == 0
    (parameters / "Session.json").write_text(json.dumps(session | {"UseKeyValueStore": True}))
    connection = f"127.0.0.1:{redis_server.port},defaultDatabase=0,abortConnect=False"
    (parameters / "Kvs.json").write_text(json.dumps({"ConnectionStringForSession": connection}))
    with keystead_serving(tmp_path) as server:
        guid = await _use_api(server, token)
    assert 29 * 60 < redis_server.ask("TTL", guid_of(guid)) <= 30 * 60
