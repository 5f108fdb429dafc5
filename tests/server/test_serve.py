"""`keystead serve`, end to end."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import keystead
from keystead.cli.keyspace_arguments import NAMED, keyspaces
from keystead.kits import KITS
from keystead.schema.docs import document
from keystead.server import Settings, create_app
from keystead.stores.commands import TABLE
from tests import forking
from tests.serving import (
    Keystead,
    environment,
    free_port,
    installed_keystead_serving,
    keystead_command,
    keystead_serving,
    listens,
    redis_serving,
    wait_until,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """For tests that only send requests."""
    with installed_keystead_serving(tmp_path_factory.mktemp("serving")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Keystead]:
    with keystead_serving(tmp_path) as running:
        yield running


def get(server: Keystead, path: str) -> httpx2.Response:
    return httpx2.get(f"{server.url}{path}", timeout=300)


def run_keystead(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return forking.run(arguments, folder, environment(settings))


def run_installed_keystead(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Started like a user would, by the installed program."""
    return subprocess.run(
        keystead_command(*arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_one_sentence(result: subprocess.CompletedProcess[str]) -> None:
    assert result.stdout == ""
    assert result.stderr.startswith("keystead: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr


def test_without_settings_it_uses_an_embedded_database_in_the_current_folder(server: Keystead) -> None:
    assert get(server, "/healthz").json() == {"status": "ok", "store": "ok"}
    assert (server.folder / "keystead.db").is_file()


def test_the_document_lists_every_created_file(own_server: Keystead) -> None:
    rows = re.findall(r"^\| (`.*?) \|", (Path(__file__).parents[2] / "docs" / "server.md").read_text(), re.MULTILINE)
    listed = {name.rstrip("/") for row in rows for name in re.findall("`(.+?)`", row)}
    get(own_server, "/")
    left = {path.name for path in own_server.folder.iterdir()} - {"output.txt"}
    assert {"keystead.db", "keystead.db-wal", "keystead.files", "keystead.secrets.toml"} <= left
    assert left <= listed
    assert own_server.stop() == 0
    after = {path.name for path in own_server.folder.iterdir()} - {"output.txt"}
    assert after == {name for name in left if not name.endswith(("-wal", "-shm"))}


def test_it_prints_the_address_to_open_and_a_link_to_the_console(own_server: Keystead) -> None:
    address, link = own_server.said.splitlines()[-2:]
    assert address == f"Keystead is running: open {own_server.url} (Ctrl-C stops it)"
    assert re.fullmatch(rf"Console: {own_server.url}/console/enter#[\w-]{{43}} \(works once, within 1 hour\)", link)


@pytest.mark.parametrize(
    "exposed",
    [
        {"KEYSTEAD_HOST": "0.0.0.0", "KEYSTEAD_CONSOLE__ON": "true"},
        {"KEYSTEAD_MODE": "production", "KEYSTEAD_PUBLIC_URL": "https://example.com", "KEYSTEAD_CONSOLE__ON": "true"},
    ],
    ids=["other machines", "production"],
)
def test_a_server_that_others_can_reach_prints_no_link_to_the_console(tmp_path: Path, exposed: dict[str, str]) -> None:
    with keystead_serving(tmp_path, None, "--kits", "console", **exposed) as running:
        assert get(running, "/console").status_code == 401  # it runs
        assert "Keystead is running" in running.said
        assert "console/enter" not in running.said


def test_the_start_page_describes_keystead_and_names_the_store(server: Keystead) -> None:
    answer = get(server, "/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert keystead.__version__ in answer.text
    assert "sqlite:///keystead.db" in answer.text
    assert len(re.findall(r"\.(?:\s|$)", description_on(answer.text))) == 1
    assert description_on(answer.text).startswith("Declare each key of your data once")


def description_on(page: str) -> str:
    found = re.search(r'<p class="what">(.*?)</p>', page, re.DOTALL)
    assert found
    return " ".join(found[1].split())


def test_reference_tables_have_their_own_page(server: Keystead) -> None:
    start, reference = get(server, "/").text, get(server, "/reference").text
    assert "<table" not in start
    assert 'href="/reference"' in start
    assert "sqlite:///keystead.db" in reference
    assert "durability" in reference
    assert [name for name in TABLE if f"<code>{name}" not in reference] == []


def test_all_key_documents_are_served_and_linked(server: Keystead) -> None:
    start, index = get(server, "/").text, get(server, "/keys").text
    assert get(server, "/keys/").text.replace('value="/keys/"', 'value="/keys"') == index  # where its form returns to
    assert 'href="/keys"' in start
    assert [name for name in KITS if f'href="/keys/{name}"' not in start] == []
    for name in NAMED:
        keyspace = keyspaces([name])[0]  # the kit's own; those of its parts follow
        page = get(server, f"/keys/{name}").text
        assert f'href="/keys/{name}"' in index
        assert [one.key for one in document(keyspace).families if f"<code>{one.key}</code>" not in page] == []


def test_a_missing_key_document_is_a_404(server: Keystead) -> None:
    assert get(server, "/keys/none").json()["code"] == "NOT_FOUND"


async def test_pages_are_served_before_the_store_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = create_app(Settings(store="memory://", kits=()))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8700") as client:
        for path in ("/", "/reference"):
            answer = await client.get(path)
            assert (answer.status_code, "not open yet" in answer.text) == (200, True), path


def groups_of_commands(page: str) -> dict[str, str]:
    """The HTML of each group, by its heading."""
    return dict(re.findall(r'<span class="subject">(.*?)</span>(.*?)</details>', page, re.DOTALL))


def test_commands_are_grouped_by_subject(server: Keystead) -> None:
    groups = groups_of_commands(get(server, "/reference").text)
    assert set(groups) == {spec.about for spec in TABLE.values()}
    assert [name for name, spec in TABLE.items() if f"<code>{name}" not in groups[spec.about]] == []


def test_a_guarantee_without_a_limit_is_shown_once(server: Keystead) -> None:
    page = get(server, "/reference").text
    assert '<span class="value">no limit</span><span class="doc">the longest key</span>' in page
    assert "none:" not in page


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_head_has_the_headers_of_get_without_a_body(server: Keystead, path: str) -> None:
    answer = httpx2.head(f"{server.url}{path}", timeout=300)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == get(server, path).headers["content-type"]
    assert answer.content == b""


def test_the_openapi_document_declares_both_answers_of_the_health_check(server: Keystead) -> None:
    paths = get(server, "/openapi.json").json()["paths"]
    assert {"/healthz", "/readyz", "/metrics"} <= paths.keys()
    assert list(paths["/healthz"]) == ["get"]
    assert paths["/healthz"]["get"]["operationId"] == "healthz"
    assert set(paths["/healthz"]["get"]["responses"]) == {"200", "503"}


@pytest.mark.parametrize("path", ["/no-such-page", "/static/no-such-file"])
def test_a_404_is_html_for_a_browser_and_json_for_a_program(server: Keystead, path: str) -> None:
    browser = httpx2.get(f"{server.url}{path}", headers={"accept": "text/html,application/xml;q=0.9,*/*;q=0.8"})
    assert browser.status_code == 404
    assert browser.headers["content-type"] == "text/html; charset=utf-8"
    assert '<a class="button" href="/">Back to the start page</a>' in browser.text
    program = get(server, path)
    assert program.status_code == 404
    assert program.json() == {"ok": False, "error": "There is nothing at this address.", "code": "NOT_FOUND"}
    assert browser.headers["vary"] == program.headers["vary"] == "accept"


PAGES = ("/", "/reference", "/keys", "/keys/login")


@pytest.mark.parametrize("path", [*PAGES, "/healthz", "/static/pages.css", "/no-such-page"])
def test_every_response_has_the_security_headers(server: Keystead, path: str) -> None:
    headers = get(server, path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    # Pages have a form in their header: with `no-referrer` a browser would not say that it comes from this site.
    assert headers["referrer-policy"] == ("strict-origin" if path in PAGES else "no-referrer")


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"mode": "production", "public_url": "https://example.com"}, True),
        ({"mode": "production", "public_url": "http://127.0.0.1:8700"}, False),
        ({"mode": "development", "public_url": "https://example.com"}, False),
    ],
    ids=["production", "production on this machine alone", "development"],
)
async def test_production_sends_hsts(settings: dict[str, str], is_told: bool) -> None:
    app = create_app(Settings.model_validate({"store": "memory://", "kits": (), **settings}))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=settings["public_url"]) as client:
        for path in ("/healthz", "/no-such-page", "/static/pages.css"):
            told = (await client.get(path)).headers.get("strict-transport-security")
            assert told == ("max-age=31536000" if is_told else None)


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fapp.py"])
def test_only_the_static_folder_is_served(server: Keystead, path: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as raw:  # a client would tidy the path
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert raw.makefile("rb").readline().split()[1] == b"404"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(own_server: Keystead, signum: signal.Signals) -> None:
    with httpx2.Client() as client:
        client.get(f"{own_server.url}/healthz")  # a connection that is kept open must not hold it back
        assert own_server.stop(signum) == 0
    assert own_server.said.endswith("Keystead has stopped.\n")
    assert "Traceback" not in own_server.said


@pytest.mark.matrix
def test_an_unfinished_request_does_not_prevent_shutdown(own_server: Keystead) -> None:
    with socket.create_connection(("127.0.0.1", own_server.port), timeout=300) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Half-A-He")
        assert own_server.stop() == 0


def test_a_store_outage_is_reported_without_the_password(tmp_path: Path) -> None:
    password = "correct-horse-battery"
    with redis_serving(tmp_path, password) as (redis, redis_port):
        store = f"redis://:{password}@127.0.0.1:{redis_port}/0?timeout=1s"
        with keystead_serving(tmp_path, store) as server:
            assert get(server, "/healthz").status_code == 200
            healthy_page = get(server, "/")
            redis.kill()
            wait_until(lambda: not listens(redis_port), "redis-server is gone")
            health = get(server, "/healthz")
            page = get(server, "/")
            assert server.stop() == 0
    assert health.status_code == 503
    assert health.json()["status"] == "unavailable"
    assert str(redis_port) in health.json()["store"]
    assert page.status_code == 200
    assert "does not answer" in page.text
    assert str(redis_port) in healthy_page.text
    for text in (healthy_page.text, page.text, health.text, server.said):
        assert password not in text


def test_production_hides_the_store_from_the_public(tmp_path: Path) -> None:
    with redis_serving(tmp_path, "correct-horse-battery") as (redis, redis_port):
        store = f"redis://:correct-horse-battery@127.0.0.1:{redis_port}/0?timeout=1s"
        arguments = ("--production", "--public-url", "http://127.0.0.1:1", "--kits", "")
        with keystead_serving(tmp_path, store, *arguments) as server:
            healthy = get(server, "/").text
            redis.kill()
            wait_until(lambda: not listens(redis_port), "redis-server is gone")
            page = get(server, "/").text
            health, readiness = get(server, "/healthz"), get(server, "/readyz")
            development_only = [
                get(server, path).status_code for path in ("/keys", "/keys/", "/keys/outbox", "/reference")
            ]
            assert server.stop() == 0
    assert '<span class="state good">ok</span>' in healthy
    assert '<span class="state bad">unavailable</span>' in page
    assert (health.status_code, health.json()) == (503, {"status": "unavailable", "store": "unavailable"})
    assert readiness.json()["stores"] == {"default": "unavailable"}
    assert development_only == [404] * 4
    for text in (healthy, page, health.text, readiness.text):
        assert str(redis_port) not in text
        assert "redis" not in re.sub(r'<p class="what">.*?</p>', "", text, flags=re.DOTALL).lower()
        assert "/keys" not in text
        assert "/reference" not in text
        assert "durability" not in text
    assert f"127.0.0.1:{redis_port}" in server.said  # whoever runs it is told why


def test_a_port_in_use_is_a_one_line_error_with_exit_code_1(server: Keystead, tmp_path: Path) -> None:
    result = run_keystead(tmp_path, "serve", "--port", str(server.port))
    assert result.returncode == 1
    assert_one_sentence(result)
    assert str(server.port) in result.stderr


def test_an_unknown_store_is_a_one_line_error_with_exit_code_2(tmp_path: Path) -> None:
    result = run_keystead(tmp_path, "serve", "--port", str(free_port()), "--store", "carrier-pigeon://coop")
    assert result.returncode == 2
    assert_one_sentence(result)
    assert "carrier-pigeon" in result.stderr


def test_an_unreachable_store_is_a_one_line_error_with_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are notes and not a database\n" * 200)
    result = run_keystead(tmp_path, "serve", "--port", str(free_port()), "--store", "sqlite:///notes.db")
    assert result.returncode == 1
    assert_one_sentence(result)
    assert "notes.db" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        ((), {"KEYSTEAD_PORT": "abc"}, "KEYSTEAD_PORT: 'abc' is not a number from 1 to 65535"),
        (("--port", "70000"), {}, "--port: '70000' is not a number from 1 to 65535"),
        (("--host", ""), {}, "--host: '' is not an address; write one such as 127.0.0.1"),
        (
            (),
            {"KEYSTEAD_STORE": ""},
            "KEYSTEAD_STORE: this is not the URL of a store; write one such as sqlite:///keystead.db",
        ),
    ],
)
def test_an_invalid_setting_is_a_one_line_error_with_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], settings: dict[str, str], sentence: str
) -> None:
    result = run_keystead(tmp_path, "serve", *arguments, **settings)
    assert result.returncode == 2
    assert_one_sentence(result)
    assert result.stderr == f"keystead: {sentence}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("serve", "--help")])
def test_help_shows_no_value_for_flags(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shown = run_keystead(tmp_path, *arguments).stdout
    assert "--help" in shown
    assert "<bool>" not in shown
    assert "BOOLEAN" not in shown


def test_the_version_and_the_help_are_printed(tmp_path: Path) -> None:
    assert run_installed_keystead(tmp_path, "--version").stdout == f"keystead {keystead.__version__}\n"
    assert "keystead serve" in run_installed_keystead(tmp_path, "--help").stdout
    assert "KEYSTEAD_STORE" in run_keystead(tmp_path, "serve", "--help").stdout
