"""Worker processes: replaced when they die, stopped with the server, and gone when their parent is killed."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import httpx2

from tests import servers
from tests.server.conftest import ROOT, notes_serving
from tests.server.test_serve import assert_one_sentence, run_keystead
from tests.serving import STOP_SECONDS, Keystead, free_port, listens, wait_until


def workers(server: Keystead) -> set[int]:
    """The running worker processes."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return {int(pid) for pid in children if is_running(int(pid))}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ready(server: Keystead) -> int:
    try:
        return httpx2.get(f"{server.url}/readyz", timeout=300).status_code
    except httpx2.HTTPError:
        return 0


def test_a_killed_worker_is_replaced_and_requests_continue(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, "--workers", "2") as server:
        wait_until(lambda: len(workers(server)) == 2, "both workers run")
        before = workers(server)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(workers(server)) == 2 and victim not in workers(server), "it is replaced")
        wait_until(lambda: all(ready(server) == 200 for _ in range(10)), "all answer again")
        page = httpx2.get(f"{server.url}/metrics", timeout=300).text
        assert "keystead_requests_in_flight 1.0" in page
        assert server.stop() == 0


def test_workers_run_uvloop_which_make_serve_installs(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server:
        assert httpx2.get(f"{server.url}/api/notes/worker").json()["loop"] == "uvloop"
    assert "\nuvloop==" in (ROOT / "requirements" / "run.txt").read_text()
    assert "$(RUN)/.ready: requirements/run.txt" in (ROOT / "Makefile").read_text()


def test_the_only_worker_is_replaced_too(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server:
        [victim] = workers(server)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: ready(server) == 200 and victim not in workers(server), "another one answers")


def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with notes_serving(tmp_path, None, "--workers", "2", TMPDIR=str(temporary)) as server:
        wait_until(lambda: len(workers(server)) == 2, "both workers run")
        left = workers(server)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(map(is_running, left)) and not listens(server.port), "the workers are gone")
        assert list(temporary.iterdir()) == []


def test_a_running_request_finishes_before_shutdown(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server:
        answers: list[httpx2.Response] = []
        client = httpx2.Client(timeout=300)
        slow = f"{server.url}/api/notes/until-there?file=released"
        asking = threading.Thread(target=lambda: answers.append(client.get(slow)))
        asking.start()
        wait_until(lambda: "in_flight 2.0" in httpx2.get(f"{server.url}/metrics").text, "the request is under way")
        server.process.send_signal(signal.SIGTERM)
        (server.folder / "released").touch()
        assert server.process.wait(STOP_SECONDS) == 0
        asking.join(STOP_SECONDS)
        assert [answer.json() for answer in answers] == [{"ok": True}]
        client.close()


def test_shutdown_does_not_wait_for_a_request_beyond_the_limit(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, KEYSTEAD_STOP_TIMEOUT="1s") as server:

        def ask() -> None:
            with suppress(httpx2.HTTPError):
                httpx2.get(f"{server.url}/api/notes/slow", timeout=300)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(
            lambda: "in_flight 2.0" in httpx2.get(f"{server.url}/metrics", timeout=300).text, "the request is under way"
        )
        assert server.stop() == 0
        asking.join(300)
        assert server.said.endswith("Keystead has stopped.\n")


def test_ctrl_c_reaches_all_processes_and_stops_cleanly(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, "--workers", "2") as server:
        wait_until(lambda: len(workers(server)) == 2, "both workers run")
        for pid in workers(server):
            os.kill(pid, signal.SIGINT)
        assert server.stop(signal.SIGINT) == 0
        assert "Traceback" not in server.said
        assert server.said.endswith("Keystead has stopped.\n")


def test_several_workers_on_memory_are_a_one_line_error(tmp_path: Path) -> None:
    result = run_keystead(
        tmp_path, "serve", "--port", str(free_port()), "--store", "memory://", "--workers", "2", "--kits", ""
    )
    assert result.returncode == 2
    assert_one_sentence(result)
    assert "memory://" in result.stderr


def test_a_hanging_store_is_a_503_and_is_used_again_when_it_answers(tmp_path: Path) -> None:
    with servers.valkey() as valkey:
        url = f"{valkey.url}?timeout=500ms&connect_timeout=500ms"
        with notes_serving(tmp_path, url) as server:
            note = {"id": "a", "text": "b"}
            assert httpx2.post(f"{server.url}/api/notes", json=note, timeout=300).status_code == 200
            assert ready(server) == 200
            valkey.pause()
            try:
                for path in ("/readyz", "/api/notes/by-id/a"):
                    answer = httpx2.get(f"{server.url}{path}", timeout=300)
                    assert answer.status_code == 503
                    assert answer.headers["retry-after"] == "1"
                assert answer.json()["code"] == "STORE_UNAVAILABLE"
                readiness = httpx2.get(f"{server.url}/readyz", timeout=300).json()
                assert readiness["status"] == "unavailable"
                assert readiness["stores"]["default"] != "ok"
                assert httpx2.get(f"{server.url}/api/notes/worker", timeout=300).status_code == 200
            finally:
                os.kill(valkey.pid, signal.SIGCONT)
            wait_until(lambda: ready(server) == 200, "the store is used again")
            assert httpx2.get(f"{server.url}/api/notes/by-id/a", timeout=300).json() == {"ok": True, "text": "b"}


def test_each_role_is_checked_and_an_unavailable_one_is_named(tmp_path: Path) -> None:
    with servers.valkey() as valkey:
        cache = f"cache={valkey.url}?timeout=500ms&connect_timeout=500ms"
        with notes_serving(tmp_path, None, "--store", "sqlite:///notes.db", "--store", cache) as server:
            assert httpx2.get(f"{server.url}/readyz", timeout=300).json() == {
                "status": "ok",
                "stores": {"default": "ok", "cache": "ok"},
                "kits": ["notes"],
            }
            valkey.kill()
            answer = httpx2.get(f"{server.url}/readyz", timeout=300)
            assert answer.status_code == 503
            assert answer.json()["stores"]["default"] == "ok"
            assert answer.json()["stores"]["cache"] != "ok"
            assert httpx2.get(f"{server.url}/healthz", timeout=300).status_code == 200
            page = httpx2.get(f"{server.url}/", timeout=300).text
            assert "Store: cache" in page
            assert "unavailable" in page


def test_a_worker_started_during_an_outage_responds_503_and_opens_the_store_later(tmp_path: Path) -> None:
    with (
        servers.valkey() as valkey,
        notes_serving(tmp_path, f"{valkey.url}?timeout=500ms&connect_timeout=500ms") as server,
    ):
        [victim] = workers(server)
        valkey.kill()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: ready(server) == 503, "another worker says that it is not ready")
        for path in ("/api/notes/by-id/a", "/healthz"):
            assert httpx2.get(f"{server.url}{path}", timeout=300).status_code == 503
        assert httpx2.get(f"{server.url}/", timeout=300).status_code == 200
        valkey.restart()
        wait_until(lambda: ready(server) == 200, "it has opened its store")
        assert httpx2.get(f"{server.url}/api/notes/by-id/a", timeout=300).status_code == 404
