"""The files in `deploy/`: checked by the programs that read them, and run where this machine can."""

import json
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import yaml

from keystead.server.metrics import METRICS
from tests.serving import (
    Keystead,
    answering,
    environment,
    free_port,
    keystead_serving,
    listens,
    program,
    wait_until,
)

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def test_the_manifests_run_without_root_with_probes_and_without_a_gap() -> None:
    deployment, service, policy = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    for one in (deployment, service, policy):
        kubernetes_validate.validate(one, "1.31", strict=True)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == policy["spec"]["podSelector"]["matchLabels"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"keystead", "valkey", "postgres"}
    assert all("healthcheck" in services[name] for name in services["keystead"]["depends_on"])
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001$", image, re.MULTILINE)
    assert "HEALTHCHECK" in image


def test_every_setting_in_the_deploy_files_exists() -> None:
    from keystead.server.settings import Settings

    named = {one.lower() for path in DEPLOY.iterdir() for one in re.findall(r"KEYSTEAD_([A-Z_]+)", path.read_text())}
    assert len(named) > 5
    assert named - Settings.model_fields.keys() == set()


def test_only_a_proxy_is_trusted_to_name_the_client() -> None:
    """Compose has the one address of the proxy; pods are reached through the ingress controller only."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    gateway = compose["networks"]["default"]["ipam"]["config"][0]["gateway"]
    assert compose["services"]["keystead"]["environment"]["KEYSTEAD_FORWARDED_ALLOW"] == gateway
    *_, policy = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    [allowed] = policy["spec"]["ingress"]
    assert [*allowed["from"][0]] == ["namespaceSelector"]


def test_the_image_has_the_pinned_packages() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*?)(?: &&|$)", image, re.MULTILINE)
    assert all("--no-deps" in one for one in installs)
    assert "--require-hashes -r requirements/run.txt" in installs[0]
    assert re.findall(r"^FROM python:(\S+)-slim", image, re.MULTILINE) == ["3.13", "3.13"]


@pytest.mark.matrix
def test_the_linters_of_images_and_compose_files_have_nothing_to_say() -> None:
    tools = Path(sys.executable).parent
    compose = ("--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    for command in ((tools / "hadolint", DEPLOY / "Dockerfile"), (tools / "check-jsonschema", *compose)):
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def metrics_of(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of a PromQL expression, with the labels that it selects or groups by."""
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
    for name, selected in re.findall(r"(keystead_\w+)(?:\{([^}]*)\})?", expression):
        yield name, grouped | set(re.findall(r"(\w+)[=!]", selected))


def test_the_dashboard_and_the_alerts_name_metrics_and_labels_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = re.findall(r"^\| [^|]+ \| `(.*?)`", (ROOT / "docs" / "monitoring.md").read_text(), re.MULTILINE)
    assert len(alerts) >= 5
    used: set[str] = set()
    wrong: list[tuple[str, str, str]] = []
    for expression in [*queries, *alerts]:
        for name, labels in metrics_of(expression):
            base = name.removesuffix("_bucket")
            used.add(base)
            known = {*METRICS[base][1], *(["le"] if name != base else [])} if base in METRICS else set()
            wrong += [(expression, name, label) for label in labels - known]
    assert wrong == []
    assert used == METRICS.keys()


def test_the_image_builds_from_what_its_context_contains(tmp_path: Path) -> None:
    """As far as without Docker: the copied files make a wheel, and no other file of the checkout is sent."""
    image = (DEPLOY / "Dockerfile").read_text()
    copied = [name for names in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE) for name in names.split()]
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == sent
    for name in copied:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)


@contextmanager
def running(command: list[Any], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: listens(port) or process.poll() is not None, f"{command[0]} listens")
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def assert_serves(client: httpx2.Client, server: Keystead) -> None:
    """Health checks and pages pass, metrics do not, and the log has the request id of the proxy."""
    assert client.get("/healthz").json() == {"status": "ok", "store": "ok"}
    assert client.get("/metrics").status_code in (403, 404)
    answer = client.get("/", headers={"x-request-id": "chosen-by-the-client"})
    assert answer.status_code == 200
    given = answer.headers["x-request-id"]
    assert given != "chosen-by-the-client"
    wait_until(lambda: given in server.said, "the log has the request id of the proxy")


@pytest.mark.matrix
def test_nginx_serves_keystead_with_these_settings(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=example.com"),
            *("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    with keystead_serving(tmp_path, None, KEYSTEAD_FORWARDED_ALLOW="127.0.0.1") as server:
        settings = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
        for name, file in (("example.com.pem", "cert.pem"), ("example.com.key", "key.pem")):
            settings = settings.replace(f"/etc/ssl/{name}", str(tmp_path / file))
        settings = settings.replace("listen 80", f"listen 127.0.0.1:{free_port()}")
        settings = settings.replace("listen 443", f"listen 127.0.0.1:{port}")
        (tmp_path / "nginx.conf").write_text(
            f"daemon off;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{settings}}}\n"
        )
        trusted = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        trusted.check_hostname = False
        with (
            running([program("nginx"), "-p", tmp_path, "-c", tmp_path / "nginx.conf"], port),
            httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted, timeout=60) as client,
        ):
            assert_serves(client, server)


@pytest.mark.matrix
def test_caddy_serves_keystead_with_these_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    caddy, port = program("caddy"), free_port()
    original = (DEPLOY / "Caddyfile").read_text()
    check: list[str | Path] = [caddy, "adapt", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile"]
    assert b"example.com" in subprocess.run(check, check=True, capture_output=True).stdout
    with keystead_serving(tmp_path, None, KEYSTEAD_FORWARDED_ALLOW="127.0.0.1") as server:
        settings = original.replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
        settings = settings.replace("example.com {", f"http://127.0.0.1:{port} {{")  # no certificate without a domain
        (tmp_path / "Caddyfile").write_text(f"{{\n\tadmin off\n}}\n{settings}")
        command = [caddy, "run", "--adapter", "caddyfile", "--config", tmp_path / "Caddyfile"]
        with (
            running(command, port),
            httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            assert_serves(client, server)


@pytest.mark.matrix
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "keystead.service"
    started = Path(sys.executable).with_name("keystead")
    text = (DEPLOY / "keystead.service").read_text()
    unit.write_text(text.replace("/usr/local/lib/keystead/bin/keystead", str(started)))
    checked = subprocess.run([program("systemd-analyze"), "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "keystead.service" in line]) == (0, [])


@pytest.mark.matrix
def test_the_unit_starts_reloads_and_stops_the_server(tmp_path: Path) -> None:
    """Its lines are run as systemd runs them: the command in its folder, with its file of settings and its mask."""
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "keystead.service").read_text(), re.MULTILINE))
    keystead = str(Path(sys.executable).with_name("keystead"))
    sealed = subprocess.run([keystead, "secrets", "new"], capture_output=True, text=True, check=True).stdout
    written = sealed + "KEYSTEAD_PUBLIC_URL=https://example.com\n"
    settings = dict(re.findall(r"^(KEYSTEAD_\w+)=(.*)$", written, re.MULTILINE))
    assert settings.keys() == {"KEYSTEAD_SEAL_KEYS", "KEYSTEAD_PUBLIC_URL"}
    state, port, output = tmp_path / "state", free_port(), tmp_path / "output.txt"
    state.mkdir()
    start = unit["ExecStart"].replace("/usr/local/lib/keystead/bin/keystead", keystead)
    with output.open("w") as stream:
        process = subprocess.Popen(
            [*shlex.split(start), "--port", str(port)],
            cwd=state,
            env=environment(settings),
            umask=int(unit["UMask"], 8),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    with answering(Keystead(process, port, output)) as server:
        assert httpx2.get(f"{server.url}/healthz").json() == {"status": "ok", "store": "ok"}
        assert {path.stat().st_mode & 0o077 for path in state.iterdir()} == {0}
        reload = unit["ExecReload"].replace("$MAINPID", str(process.pid))
        subprocess.run(shlex.split(reload), check=True)
        wait_until(lambda: "Keystead has new workers." in server.said, "the workers are new")
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        process.terminate()
        assert process.wait(int(unit["TimeoutStopSec"])) == 0
