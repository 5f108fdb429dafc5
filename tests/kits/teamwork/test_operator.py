"""The commands of the guide set up a team of three with Slack and deadlines."""

import json
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest

from tests import forking, servers
from tests.kits.teamwork.test_guide import examples
from tests.parts.oauth.stand_in import StandIn, answer, stand_in
from tests.real_servers import redis_server
from tests.serving import Keystead, environment, keystead_serving

__all__ = ["redis_server"]

HOOK = "https://hooks.slack.com/services/T000/B000/secret"
PATH = "/services/T000/B000/secret"
SLACK_IDS = {"Mei": "U012ABCDE", "Ann": "U034FGHIJ"}


@pytest.fixture
async def slack() -> AsyncIterator[StandIn]:
    async with stand_in() as server:
        server.answers[PATH] = answer(b"ok")
        yield server


class Terminal:
    """A terminal in the folder of the server."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.used: set[str] = set()

    async def run(self, line: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line)
        assert words[0] == "keystead"
        self.used.add(words[2])
        ended = await anyio.to_thread.run_sync(forking.run, words[1:], self.folder, environment(self.env))
        assert ended.returncode == 0, (line, ended.stderr)
        return ended

    async def block(self, text: str) -> list[str]:
        return [(await self.run(line)).stdout for line in text.splitlines()]

    async def until_said(self, word: str, text: str) -> list[str]:
        """Slack accepts a message shortly before it is logged: repeat the commands until the first prints `word`."""
        for _ in range(20):
            said = await self.block(text)
            if word in said[0]:
                return said
        raise AssertionError(said)


def midday_zone() -> str:
    """A time zone in which it is about noon now, after 09:00."""
    hours = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-hours:+d}" if hours else "Etc/GMT"


def join(server: Keystead, name: str, link: str) -> dict[str, Any]:
    """Open a link, sign in at the demo provider, and accept the invitation."""
    at, _, token = link.partition("#invitation=")
    assert at == f"{server.url}/teamwork"
    with httpx2.Client(base_url=server.url, timeout=300) as browser:
        start = browser.get("/api/auth/demo/start?returnTo=/teamwork", headers={"accept": "text/html"})
        asked = urlsplit(start.headers["location"])
        own = {"origin": server.url}
        agreed = browser.post(asked.path, data={**dict(parse_qsl(asked.query)), "name": name}, headers=own)
        back = urlsplit(agreed.headers["location"])
        browser.get(f"{back.path}?{back.query}")
        joined = browser.post("/api/invitations/accept", json={"token": token}, headers=own)
        assert joined.status_code == 200, joined.text
        again = browser.post("/api/invitations/accept", json={"token": token}, headers=own)
        assert again.json()["code"] == "INVITATION_INVALID"
        found: dict[str, Any] = browser.get("/api/me").json()
        return found


@pytest.mark.matrix
@pytest.mark.everyday("sqlite")
@pytest.mark.parametrize("where", ["sqlite", "redis"])
async def test_the_commands_of_the_guide_set_up_a_team_of_three_with_slack_and_deadlines(
    where: str, tmp_path: Path, slack: StandIn, request: pytest.FixtureRequest
) -> None:
    start, create, look, say, due, log, program, later = examples("sh")
    settings = {name: value.replace(HOOK, slack.url + PATH) for name, value in re.findall(r"export (\w+)=(\S+)", start)}
    assert start.splitlines()[-1] == "keystead serve"
    store = None
    if where == "redis":
        redis: servers.Server = request.getfixturevalue("redis_server")
        redis.ask("FLUSHALL")
        store = settings["KEYSTEAD_STORE"] = redis.url
    with keystead_serving(tmp_path, store, **settings) as server:
        port = str(urlsplit(server.url).port)
        terminal = Terminal(tmp_path, {**settings, "KEYSTEAD_PORT": port})
        made, *links = await terminal.block(create.replace("Asia/Seoul", midday_zone()))
        assert re.match(
            r"team 1, Print shop: Etc/GMT\S*, where it is \d{4}-\d\d-\d\d; notified 7, 3 days before a deadline\n", made
        )
        names = re.findall(r"invite 1 (\w+)", create)
        for name, link in zip(names, links, strict=True):
            me = await anyio.to_thread.run_sync(join, server, name, link.strip())
            assert (me["name"], me["teamId"]) == (name, 1)
        members, invitations = await terminal.block(look)
        roles = [["Ann", "ADMIN"], ["Ben", "MEMBER"], ["Mei", "OWNER"]]
        assert sorted(line.split()[1:3] for line in members.splitlines()) == roles
        assert invitations == "there are no open invitations\n"
        for line in await terminal.block(say):
            name, slack_id = line.split()[1], line.split()[-1]
            assert SLACK_IDS[name] == slack_id

        today = json.loads((await terminal.run("keystead teamwork settings 1 --json")).stdout)["today"]
        day = (datetime.fromisoformat(today) + timedelta(days=3)).date().isoformat()
        _, listed, ran = await terminal.block(due.replace("2026-03-03", day))
        assert listed.startswith(f"{day}  WORK_REQUEST:101  3 days  Print invoices")
        assert "told 1" in ran
        await slack.until_asked(PATH, 1)
        [sent] = [json.loads(sent.partition("\r\n\r\n")[2]) for path, sent in slack.asked if path == PATH]
        section, actions = sent["attachments"][0]["blocks"]
        expected = f"*WR-101 is due soon*\n<@U012ABCDE> due in 3 days ({day}): Print invoices"
        assert section["text"]["text"] == expected
        assert actions["elements"][0]["url"] == f"{server.url}/teamwork?refType=WORK_REQUEST&refId=101"
        told, failed = await terminal.until_said("SENT", log)
        assert re.search(r"SENT  notice \d+  user \d+\n", told)
        assert "FAILED" not in failed

        _, token = await terminal.block(program)
        item = {"refType": "DEFECT", "refId": "a/7", "title": "Broken", "docNo": "DF-7", "assigneeId": _number(members)}
        async with httpx2.AsyncClient(base_url=server.url, timeout=300) as http:
            event = {"kind": "assigned", "id": "build:1", "item": item}
            bearer = {"authorization": f"Bearer {token.strip()}"}
            assert (await http.post("/api/events", json=event, headers=bearer)).json() == {"notices": 1}
        await slack.until_asked(PATH, 2)
        assert "Build server assigned DF-7 to Mei" in slack.asked[-1][1]
        changed, role, gone, done = await terminal.block(later)
        assert changed.startswith("team 1, Print shop: Europe/Berlin")
        assert "14, 3, 1 days before" in changed
        assert "Ben  ADMIN" in role
        assert "was removed from team 1" in gone
        assert done == "WORK_REQUEST:101 is done\n"
    assert "Traceback" not in server.said


def _number(members: str) -> int:
    return next(int(line.split()[0]) for line in members.splitlines() if line.split()[1] == "Mei")


@pytest.mark.matrix
async def test_errors_are_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    def keystead(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run(("teamwork", *arguments), tmp_path, environment())

    none = keystead("teams")
    assert (none.returncode, len(none.stderr.splitlines())) == (2, 1)
    with keystead_serving(tmp_path, None, "--kits", "teamwork"):
        assert keystead("teams").stdout == "there are no teams\n"
        assert keystead("create-team", "Print shop").returncode == 0
        for arguments, said in (
            (("members", "9"), "there is no team 9; `keystead teamwork teams` lists them"),
            (("create-team", "x", "--zone", "Mars"), "there is no time zone 'Mars'; write one such as Europe/Berlin"),
            (("create-team", "x", "--days", "a"), "--days must be a list of whole numbers, such as 7,3"),
            (("invite", "1", "--role", "BOSS"), "a team role must be one of OWNER, ADMIN, MEMBER"),
            (("set-slack", "1", "Mei", "U1"), "there is no Mei in team 1; `keystead teamwork members 1` lists them"),
            (("add-deadline", "1", "x", "2026-03-03", "t"), "write a work item as TYPE:ID, such as WORK_REQUEST:101"),
            (("add-deadline", "1", "DEFECT:1", "soon", "t"), "write a day as YYYY-MM-DD, such as 2026-03-03"),
            (("token", "7"), "there is no user 7; `keystead teamwork members TEAM` lists those of a team"),
            (("withdraw", "1", "7"), "Your team has no such member or invitation."),
        ):
            ended = keystead(*arguments)
            assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"keystead: {said}\n"), arguments
        assert [team["name"] for team in json.loads(keystead("teams", "--json").stdout)] == ["Print shop"]
        link = keystead("invite", "1", "\x1b[2J").stdout
        assert "#invitation=" not in link  # a name is one line
