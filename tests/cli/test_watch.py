"""`keystead watch`, end to end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests import forking
from tests.cli.program import SEALED, Program, assert_one_sentence
from tests.servers import Server
from tests.serving import environment


@contextmanager
def watching(program: Program, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The running command, from when it watches."""
    with subprocess.Popen(
        forking.command("watch", *arguments),
        cwd=program.folder,
        env=environment({"KEYSTEAD_STORE": program.url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("watching ")
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def test_changes_are_shown_by_family_without_secrets_and_ctrl_c_is_quiet(program: Program, server: Server) -> None:
    with watching(program, "myapp.keys", "--store", server.url, "--values", "--unknown") as process:
        server.ask("SET", "account:u1", SEALED.decode())
        written, value = lines(process, 2)
        assert written.split() == [written.split()[0], "AppKeys.account", "written", "account:u1"]
        assert value.strip() == '{"name": "Ada", "secret": "(sealed)"}'
        server.ask("SET", "x\x1b[31m\n", "1")
        server.ask("DEL", "account:u1")
        hostile, gone = lines(process, 2)
        assert hostile.split()[1:] == ["(no", "family)", "written", "x\\x1b[31m\\n"]
        assert gone.split()[1:] == ["AppKeys.account", "gone", "account:u1"]
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, "", "")


def test_json_is_one_line_for_each_change_of_the_chosen_family(program: Program) -> None:
    with watching(program, "myapp.keys:AppKeys", "--family", "lock", "--json") as process:
        program.write(("SET", "account:u1", SEALED), ("SET", "lock:a", "x", "PX", 3_600_000))
        [line] = lines(process, 1)
        found = json.loads(line)
        assert found.pop("at_ms") > 1_700_000_000_000
        assert found == {"family": "AppKeys.lock", "kind": "written", "key": "lock:a", "count": 1}


def test_what_cannot_be_watched_is_a_one_line_error(program: Program) -> None:
    assert_one_sentence(program.keystead("watch", "myapp.keys", "--family", "nothing"), 2, "there is no family")
    both = program.keystead("watch", "myapp.keys", "--family", "lock", "--unknown")
    assert_one_sentence(both, 2, "leave out --family")
    nowhere = program.keystead("watch", "myapp.keys", "--store", "redis://127.0.0.1:1/0?timeout=1s")
    assert_one_sentence(nowhere, 1, "127.0.0.1:1")
