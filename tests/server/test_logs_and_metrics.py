"""What is logged and measured about requests, and what is not."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2

from tests.server.conftest import notes_serving
from tests.serving import Keystead, keystead_serving, wait_until

SECRETS = ("secret-of-a-path", "secret-of-a-query", "secret-of-a-cookie", "secret-of-a-body", "secret-of-a-header")
NUMBER = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.e+-]+)$", re.MULTILINE)


def ask_with_secrets(server: Keystead) -> None:
    """Send requests with a secret in every place."""
    headers = {"cookie": "sid=secret-of-a-cookie", "authorization": "Bearer secret-of-a-header"}
    for method, path in (
        ("GET", "/secret-of-a-path?x=secret-of-a-query"),
        ("GET", "/api/notes/by-id/secret-of-a-path"),
        ("GET", "/static/secret-of-a-path"),
        ("POST", "/api/notes"),
        ("POST", "/api/notes/raw"),
        ("GET", "/api/notes/fail?secret=secret-of-a-query"),
        ("SECRET", "/secret-of-a-path"),
    ):
        content = b'{"id": "secret-of-a-body", "text": "secret-of-a-body"}'
        httpx2.request(
            method,
            f"{server.url}{path}",
            headers={**headers, "content-type": "application/json"},
            content=content if method == "POST" else None,
            timeout=300,
        )


def log_lines(server: Keystead, count: int) -> list[dict[str, Any]]:
    def lines() -> list[str]:
        return [line for line in server.said.splitlines() if line.startswith("{")]

    wait_until(lambda: len(lines()) >= count, "the log is written")
    return [json.loads(line) for line in lines()]


def test_production_logs_json_a_line_a_request_and_no_secret_in_any(tmp_path: Path) -> None:
    arguments = ("--production", "--public-url", "http://127.0.0.1:1")
    key = "test:" + "k" * 42 + "A"
    settings = {"KEYSTEAD_LOG_LEVEL": "debug", "NOTES_API_KEY": "x", "KEYSTEAD_SEAL_KEYS": key}
    with notes_serving(tmp_path, None, *arguments, **settings) as server:
        ask_with_secrets(server)
        lines = log_lines(server, 8)
    requests = [line for line in lines if line["logger"] == "keystead.access"]
    assert [(line["method"], line["route"], line["status"]) for line in requests] == [
        ("GET", "(unknown)", 404),
        ("GET", "/api/notes/by-id/{id}", 404),
        ("GET", "/static/{path}", 404),
        ("POST", "/api/notes", 200),
        ("POST", "/api/notes/raw", 200),
        ("GET", "/api/notes/fail", 500),
        ("OTHER", "(unknown)", 404),
    ]
    assert all(
        line.keys() == {"time", "level", "logger", "message", "request_id", "method", "route", "status", "ms"}
        for line in requests
    )
    [failure] = [line for line in lines if line["logger"] == "keystead.server"]
    assert failure["request_id"] in {line["request_id"] for line in requests}
    assert "in fail" in failure["trace"]
    assert failure["trace"].endswith("RuntimeError")  # its message may quote anything
    assert [secret for secret in (*SECRETS, "secret-of-a-local", key) if secret in server.said] == []


def test_the_text_log_omits_health_checks(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server:
        for path in ("/healthz", "/readyz", "/metrics", "/api/notes/worker"):
            httpx2.get(f"{server.url}{path}", timeout=300, headers={"x-request-id": "mine"})
        wait_until(lambda: "route=" in server.said, "the log is written")
        lines = [line for line in server.said.splitlines() if "route=" in line]
    [line] = lines
    assert re.fullmatch(
        r"\S+T\S+Z info request request_id=mine method=GET route=/api/notes/worker status=200 ms=[0-9.]+", line
    )


def numbers(server: Keystead) -> dict[tuple[str, str], float]:
    text = httpx2.get(f"{server.url}/metrics", timeout=300).text
    return {(name, labels): float(value) for name, labels, value in NUMBER.findall(text)}


def test_metrics_are_labelled_by_template_and_family_without_keys(notes: Keystead) -> None:
    ask_with_secrets(notes)
    found = numbers(notes)
    assert found["keystead_requests_total", 'method="GET",route="/api/notes/by-id/{id}",status="404"'] == 1
    assert found["keystead_requests_total", 'method="GET",route="(unknown)",status="404"'] == 1
    assert found["keystead_requests_total", 'method="OTHER",route="(unknown)",status="404"'] == 1
    assert found["keystead_request_seconds_count", 'method="POST",route="/api/notes"'] == 1
    assert found["keystead_store_calls_total", 'family="NotesKeys.note",outcome="ok",procedure=""'] == 2
    assert found["keystead_requests_in_flight", ""] == 1  # the one that asks
    text = httpx2.get(f"{notes.url}/metrics", timeout=300).text
    assert [secret for secret in SECRETS if secret in text] == []


def test_metrics_add_up_over_workers_and_their_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with notes_serving(tmp_path, None, "--workers", "2", TMPDIR=str(folder)) as server:
        pids: set[int] = set()
        requests = 0
        while len(pids) < 2 or requests < 40:  # on a busy machine one worker may take many before the other wakes up
            pids.add(httpx2.get(f"{server.url}/api/notes/worker", timeout=300).json()["pid"])
            requests += 1
        label = 'method="GET",route="/api/notes/worker",status="200"'
        # The other worker writes its numbers within a fifth of a second.
        wait_until(lambda: numbers(server)["keystead_requests_total", label] == requests, "both have written", 300)
        assert {numbers(server)["keystead_requests_total", label] for _ in range(10)} == {requests}
        assert len(list(folder.iterdir())) == 1
        assert server.stop() == 0
    assert list(folder.iterdir()) == []


def test_metrics_can_be_switched_off(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, KEYSTEAD_METRICS="false") as server:
        assert httpx2.get(f"{server.url}/metrics", timeout=300).status_code == 404
        assert "/metrics" not in httpx2.get(f"{server.url}/", timeout=300).text
        assert "/metrics" not in httpx2.get(f"{server.url}/openapi.json", timeout=300).json()["paths"]


def test_metrics_are_in_the_prometheus_format(notes: Keystead) -> None:
    httpx2.get(f"{notes.url}/docs", timeout=300)
    answer = httpx2.get(f"{notes.url}/metrics", timeout=300)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE keystead_requests_total counter" in answer.text


def test_calls_of_kit_parts_have_their_own_labels(tmp_path: Path) -> None:
    label = 'family="ScheduleKeys.job",outcome="ok",procedure="ScheduleKeys.rewrite"'
    with keystead_serving(tmp_path) as server:
        wait_until(lambda: ("keystead_store_calls_total", label) in numbers(server), "a job is planned", 300)
