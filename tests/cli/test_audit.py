"""`keystead audit`, end to end."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Log, Store, connect, never
from keystead.parts.audit import Audit, AuditEntry
from tests import forking, servers
from tests.cli.program import Program, assert_one_sentence
from tests.serving import environment

SOURCE = '''
from keystead import Keyspace, Log, Value, never
from keystead.parts.audit import AuditEntry

class AuditedKeys(Keyspace):
    """What was done."""

    links = Log("audit:links", AuditEntry, keep=5000, lifetime=never("a test"), doc="what was done with links")
    team = Log("audit:team:{team}", AuditEntry, keep=5000, lifetime=never("a test"), doc="what a team did")
    other = Log("events", str, keep=10, lifetime=never("a test"), doc="no audit")

class PlainKeys(Keyspace):
    """Nothing is noted here."""

    value = Value("plain:{id}", str, lifetime=never("a test"), doc="a value")
'''


class AuditedKeys(Keyspace):
    """The same keyspace, for the tests."""

    links = Log("audit:links", AuditEntry, keep=5000, lifetime=never("a test"))
    team = Log("audit:team:{team}", AuditEntry, keep=5000, lifetime=never("a test"))


@pytest.fixture
def audited(program: Program) -> Program:
    (program.folder / "myapp" / "audited.py").write_text(SOURCE)
    return program


def note(program: Program, *events: str, team: str | None = None, url: str | None = None, **texts: Any) -> None:
    async def work(store: Store) -> None:
        keys = AuditedKeys(store)
        audit = Audit(keys.links() if team is None else keys.team(team=team))
        for event in events:
            await audit.note(event, **texts)

    async def opened() -> None:
        async with connect(url or program.url) as store:
            await work(store)

    asyncio.run(opened())


def keystead(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    return program.keystead("audit", "myapp.audited:AuditedKeys", *arguments)


def entries(program: Program, *arguments: str) -> list[dict[str, Any]]:
    result = keystead(program, "--json", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_all_logs_are_merged_by_time_and_the_newest_is_last(audited: Program) -> None:
    note(audited, "third", now=3_000)
    note(audited, "first", now=1_000, team="a")
    note(audited, "second", now=2_000, team="b:c")
    assert [(one["event"], one["family"], one["key"]) for one in entries(audited)] == [
        ("first", "AuditedKeys.team", "audit:team:a"),
        ("second", "AuditedKeys.team", "audit:team:b%3Ac"),
        ("third", "AuditedKeys.links", "audit:links"),
    ]


def test_people_see_a_table(audited: Program) -> None:
    note(audited, "link-issued", who="user:42", what="ABC123", where="203.0.113.7", now=1_767_225_600_000)
    note(audited, "link-refused", what="A", why="it has expired", now=1_767_225_661_000)
    result = keystead(audited)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "time (UTC)           event         who      what    where        why",
        "2026-01-01 00:00:00  link-issued   user:42  ABC123  203.0.113.7",
        "2026-01-01 00:01:01  link-refused           A                    it has expired",
    ]


def test_json_has_exactly_the_stored_fields(audited: Program) -> None:
    note(audited, "link-issued", who="user:42", now=5)
    [entry] = entries(audited)
    assert entry.pop("id")
    expected = {"at": 5, "event": "link-issued", "who": "user:42", "family": "AuditedKeys.links", "key": "audit:links"}
    assert entry == expected


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        (("--event", "link-issued"), ["link-issued"]),
        (("--event", "link"), []),
        (("--who", "user:4"), ["link-issued", "link-ended"]),
        (("--what", "B"), ["link-ended", "other"]),
        (("--who", "user", "--what", "A"), ["link-issued"]),
    ],
)
def test_entries_are_filtered_by_event_actor_and_object(
    audited: Program, arguments: tuple[str, ...], events: list[str]
) -> None:
    note(audited, "link-issued", who="user:42", what="A")
    note(audited, "link-ended", who="user:43", what="B")
    note(audited, "other", what="B")
    assert [one["event"] for one in entries(audited, *arguments)] == events


def test_since_excludes_older_entries(audited: Program) -> None:
    note(audited, "old", now=1_000)
    note(audited, "new")
    assert [one["event"] for one in entries(audited, "--since", "1d")] == ["new"]
    assert [one["event"] for one in entries(audited)] == ["old", "new"]


def test_the_limit_counts_the_newest_matching_entries(audited: Program) -> None:
    note(audited, *(f"event-{number}" for number in range(8)), who="user:1")
    note(audited, *(f"event-{number}" for number in range(8, 10)), who="user:2", team="a")
    assert [one["event"] for one in entries(audited, "--limit", "3")] == ["event-7", "event-8", "event-9"]
    assert [one["event"] for one in entries(audited, "--limit", "2", "--who", "user:1")] == ["event-6", "event-7"]


def test_matching_entries_are_found_behind_many_others(audited: Program) -> None:
    async def fill(store: Store) -> None:
        entry = b'{"at":1,"event":"noise"}'
        await store.run([("XADD", "audit:links", "*", "data", b'{"at":2,"event":"needle"}')])
        for _ in range(3):
            await store.run([("XADD", "audit:links", "*", "data", entry)] * 500)

    audited.store(fill)
    assert [one["event"] for one in entries(audited, "--event", "needle")] == ["needle"]
    assert len(entries(audited, "--limit", "2000")) == 1501


def test_an_entry_that_cannot_be_read_hides_no_other(audited: Program) -> None:
    note(audited, "before")
    audited.write(("XADD", "audit:links", "*", "data", b"{}"), ("XADD", "audit:links", "*", "x", b"y"))
    note(audited, "after")
    found = entries(audited)
    assert [one.get("event", "unreadable" if one.get("unreadable") else "") for one in found] == [
        *("before", "unreadable", "unreadable", "after"),
    ]
    assert keystead(audited).stdout.count("(unreadable)") == 2
    assert [one["event"] for one in entries(audited, "--event", "after")] == ["after"]


def test_terminal_control_characters_in_entries_are_escaped(audited: Program) -> None:
    entry = json.dumps({"at": 1, "event": "\x1b[2J\nforged", "who": "\u202e"})
    audited.write(("XADD", "audit:links", "*", "data", entry))
    result = keystead(audited)
    assert len(result.stdout.splitlines()) == 2
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert len(keystead(audited, "--json").stdout.splitlines()) == 1


@pytest.mark.parametrize("text", ["\x9b31m", "\u202e", "\u2028", "\x7f", "\U000e0001"])
def test_terminal_control_characters_in_json_are_escaped_without_loss(audited: Program, text: str) -> None:
    audited.write(("XADD", "audit:links", "*", "data", json.dumps({"at": 1, "event": "é", "who": text})))
    printed = keystead(audited, "--json").stdout
    assert printed.strip("\n").isprintable()
    found = json.loads(printed)
    assert (found["event"], found["who"]) == ("é", text)


def test_an_unreadable_entry_with_the_highest_id_hides_no_other(audited: Program) -> None:
    note(audited, "before", now=1_000)
    audited.write(("XADD", "audit:links", "18446744073709551615-1", "data", b"{}"))
    shown = keystead(audited)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split()[2] for line in shown.stdout.splitlines()[1:]] == ["before", "(unreadable)"]
    assert [one.get("event") for one in entries(audited)] == ["before", None]


def test_without_entries_a_message_is_printed(audited: Program) -> None:
    result = keystead(audited)
    assert (result.returncode, result.stdout) == (0, "there are no such entries\n")
    assert keystead(audited, "--json").stdout == ""


def test_without_a_name_it_reads_the_kits(program: Program) -> None:
    result = program.keystead("audit")
    assert (result.returncode, result.stdout, result.stderr) == (0, "there are no such entries\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("myapp.audited:PlainKeys",), "AuditEntry"),
        (("myapp.audited:AuditedKeys", "--since", "5"), "--since"),
        (("myapp.audited:AuditedKeys", "--since", "99999999999w"), "is too long"),
        (("myapp.audited:AuditedKeys", "--store", "sqlite:///nowhere.db"), "there is no database"),
        (("nothing.here",), "there is no module"),
    ],
)
def test_usage_errors_are_one_line(audited: Program, arguments: tuple[str, ...], said: str) -> None:
    assert_one_sentence(audited.keystead("audit", *arguments), 2, said)


@contextmanager
def following(folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        forking.command("audit", "myapp.audited:AuditedKeys", "--follow", *arguments),
        cwd=folder,
        env=environment({"KEYSTEAD_STORE": url}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next output line. The time limit of the test ends a wait in vain."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_follow_shows_new_entries_and_ends_without_a_message(audited: Program, kind: str) -> None:
    with servers.valkey() as valkey:
        url = audited.url if kind == "sqlite" else valkey.url
        note(audited, "before", url=url)
        with following(audited.folder, url, "--json", "--who", "", "--limit", "1") as process:
            assert json.loads(line_of(process))["event"] == "before"
            note(audited, "one", "two", url=url)
            assert json.loads(line_of(process))["event"] == "one"
            assert json.loads(line_of(process))["event"] == "two"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "")


def test_following_an_empty_log_starts_with_the_first_entry(audited: Program) -> None:
    with following(audited.folder, audited.url) as process:
        assert line_of(process).split() == ["time", "(UTC)", "event", "who", "what", "where", "why"]
        note(audited, "first", who="user:1")
        assert line_of(process).split()[2:] == ["first", "user:1"]


def test_follow_reports_a_store_outage_once_and_waits(audited: Program) -> None:
    with servers.valkey("--appendonly", "yes", "--appendfsync", "always") as valkey:
        note(audited, "before", url=valkey.url)
        with following(audited.folder, f"{valkey.url}?timeout=500ms", "--json") as process:
            assert json.loads(line_of(process))["event"] == "before"
            valkey.kill()
            assert process.stderr is not None
            said = process.stderr.readline()
            valkey.start()
            assert process.stderr.readline() == "keystead: the store is back\n"
            note(audited, "after", url=valkey.url)
            assert json.loads(line_of(process))["event"] == "after"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
    assert said.startswith("keystead: ")
    assert said.endswith("; retrying until it answers\n")
    assert (process.returncode, out, err) == (130, "", "")


def test_follow_shows_a_deleted_log_that_restarts_with_lower_ids(audited: Program) -> None:
    note(audited, "before")
    with following(audited.folder, audited.url, "--json") as process:
        assert json.loads(line_of(process))["event"] == "before"
        audited.write(
            ("DEL", "audit:links"),
            ("XADD", "audit:links", "5-1", "data", b'{"at":1,"event":"restored"}'),
        )
        assert json.loads(line_of(process))["event"] == "restored"
        note(audited, "after")
        assert json.loads(line_of(process))["event"] == "after"
