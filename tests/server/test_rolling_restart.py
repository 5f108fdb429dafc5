"""SIGUSR2 renews the workers of a server under load: no request is lost, and no connection is broken."""

import json
import signal
import threading
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import httpx2
import pytest

from keystead.server.supervisor import RENEWED
from tests.server.conftest import notes_serving
from tests.server.test_workers import workers
from tests.serving import Keystead, wait_until

PAUSES_S = (0, 0, 0, 0.03, 0.1, 0.3, 0.7)  # of the clients; the first open a connection for each request
BROKEN_KIT = "raise RuntimeError('a version that cannot start')\n"


def load(port: int, answers: Counter[str], stopped: threading.Event, pause_s: float) -> None:
    """Ask on one connection, as long as the server keeps it, and pause after each request.

    `http.client` sends into a connection without a look at whether the server has closed it, as many clients do.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    number = 0
    while not stopped.wait(pause_s):
        number += 1
        try:
            if number % 3:
                connection.request("GET", "/healthz")
            else:
                note = {"id": f"n{number}", "text": "kept"}
                connection.request("POST", "/api/notes", json.dumps(note), {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, HTTPException) as error:
            answers[f"lost: {error!r}"] += 1
            connection.close()
        else:
            answers[str(answer.status)] += 1
        if pause_s == 0:
            connection.close()
    connection.close()


def renew_under_load(server: Keystead) -> Counter[str]:
    answers: Counter[str] = Counter()
    stopped = threading.Event()
    clients = [threading.Thread(target=load, args=(server.port, answers, stopped, pause)) for pause in PAUSES_S]
    for client in clients:
        client.start()
    server.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: RENEWED in server.said, "the workers are new")
    stopped.set()
    for client in clients:
        client.join()
    return answers


@pytest.mark.matrix
def test_no_request_is_lost_while_two_workers_are_renewed(tmp_path: Path) -> None:
    with notes_serving(tmp_path, "sqlite:///notes.db", "--workers", "2", KEYSTEAD_HEADER_TIMEOUT="1s") as server:
        wait_until(lambda: len(workers(server)) == 2, "both workers run")
        before = workers(server)
        answers = renew_under_load(server)
        assert answers.keys() == {"200"}
        assert answers.total() > 100
        assert len(workers(server)) == 2
        assert not workers(server) & before
        assert "Traceback" not in server.said
        assert server.stop() == 0


def test_a_worker_that_hands_over_closes_its_connections_and_accepts_none(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, KEYSTEAD_HEADER_TIMEOUT="3s") as server:
        [old] = workers(server)
        server.process.send_signal(signal.SIGUSR2)
        with httpx2.Client(timeout=60) as kept:
            wait_until(lambda: kept.get(f"{server.url}/healthz").headers.get("connection") == "close", "it hands over")
        assert {httpx2.get(f"{server.url}/api/notes/worker").json()["pid"] for _ in range(20)} == workers(server) - {
            old
        }


@pytest.mark.matrix
def test_a_version_that_cannot_start_leaves_the_present_workers(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    module = tmp_path / "own" / "own_notes.py"
    module.write_text("from tests.server.notes import KIT\n")
    paths = f"{Path(__file__).parents[2]}:{tmp_path / 'own'}"
    with notes_serving(tmp_path, None, "--kits", "own_notes:KIT", PYTHONPATH=paths) as server:
        before = workers(server)
        module.write_text(BROKEN_KIT)
        server.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: "a new worker could not start" in server.said, "the new worker has failed")
        assert workers(server) == before
        assert httpx2.get(f"{server.url}/healthz", timeout=60).status_code == 200
        module.write_text("from tests.server.notes import KIT\n")
        server.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: not workers(server) & before, "the workers are new")
        assert server.stop() == 0
