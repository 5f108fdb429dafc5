"""The README in three languages, the tutorial, and the files in `deploy/`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.serving import free_port, program, redis_serving

ROOT = Path(__file__).parents[1]
READMES = [ROOT / name for name in ("README.md", "README.ja.md", "README.ko.md")]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FIGURE = re.compile(r"\d+\.\d+")


def text_only(document: str) -> str:
    return _FENCE.sub("", document)


def table_shapes(document: str) -> list[int]:
    return [line.count("|") for line in text_only(document).splitlines() if line.startswith("|")]


def heading_levels(document: str) -> list[str]:
    return re.findall(r"^#+ ", text_only(document), re.MULTILINE)


def links(document: str) -> list[str]:
    """All but those to the other languages, in an order that does not depend on the language."""
    return sorted(link for link in _LINK.findall(document) if not link.startswith(("README", "docs/pictures")))


def test_the_readmes_have_the_same_headings_code_links_tables_and_figures() -> None:
    english, *others = (path.read_text() for path in READMES)
    for other in others:
        assert _FENCE.findall(other) == _FENCE.findall(english)
        assert heading_levels(other) == heading_levels(english)
        assert table_shapes(other) == table_shapes(english)
        assert sorted(_FIGURE.findall(text_only(other))) == sorted(_FIGURE.findall(text_only(english)))
        assert links(other) == links(english)


def test_every_figure_of_the_readme_is_in_the_benchmarks() -> None:
    comparison = READMES[0].read_text().partition("## Why not")[2].partition("## ")[0]
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    figures = set(_FIGURE.findall(comparison))
    assert len(figures) > 10
    assert [one for one in sorted(figures) if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.]\d)", measured)] == []


def test_the_example_of_the_readme_takes_at_most_fifteen_lines() -> None:
    [example] = [code for language, code in _FENCE.findall(READMES[0].read_text()) if language == "python"]
    assert len([line for line in example.splitlines() if line]) <= 15


def test_every_link_of_the_front_pages_leads_to_a_file_and_a_heading() -> None:
    missing = []
    for page in [*READMES, ROOT / "SECURITY.md", *(ROOT / "docs" / name for name in ("tutorial.md", "deploy.md"))]:
        for link in _LINK.findall(text_only(page.read_text())):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if "://" in link:
                continue
            if not target.exists() or (anchor and anchor not in anchors(target)):
                missing.append(f"{page.name}: {link}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_pictures_of_the_readme_differ_only_in_their_words() -> None:
    shapes = [
        re.findall(r"<(?:rect|path)[^>]*>", (ROOT / "docs" / "pictures" / name).read_text())
        for name in ("keystead.svg", "keystead.ja.svg", "keystead.ko.svg")
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert "prefers-color-scheme: dark" in (ROOT / "docs" / "pictures" / "keystead.svg").read_text()


TUTORIAL = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    with redis_serving(tmp_path, "party") as (_, port):
        yield port


@pytest.mark.matrix
def test_every_step_of_the_tutorial_runs_as_printed(tmp_path: Path, redis_port: int) -> None:
    """With other ports, and the packages of this environment: an installation has its own test."""
    party = tmp_path / "party"
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    ran = ""
    for language, name, block in _BLOCK.findall(TUTORIAL.read_text()):
        if language == "python":
            (party / name).write_text(block)
        elif language == "text":
            missing = [line for line in block.splitlines() if line not in ran.splitlines()]
            assert missing == [], ran
        else:
            script = re.sub(r"^(?:python3 -m venv|pip install) .*\n", "", block, flags=re.MULTILINE)
            script = script.replace("127.0.0.1:6379", f":party@127.0.0.1:{redis_port}")
            if "granian" in script:
                port = str(free_port())
                script = script.replace("--port 8000", f"--port {port}").replace(":8000/", f":{port}/") + "wait\n"
            folder = party if party.exists() else tmp_path
            done = subprocess.run(
                ["bash", "-e"], input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            ran = done.stdout
    assert (party / "documents" / "party-keys.md").is_file()


@pytest.mark.parametrize("page", ["tutorial.md", "deploy.md", "versioning.md"])
def test_a_sentence_of_a_guide_has_at_most_thirty_words(page: str) -> None:
    text = re.sub(r"^(?:\||#).*$", "\n", _BLOCK.sub("\n\n", (ROOT / "docs" / page).read_text()), flags=re.MULTILINE)
    sentences = re.split(r"(?<=[.:!?])\s+|\n\s*\n|\n- |\n\d+\. ", text)
    assert [one for one in sentences if len(one.split()) > 30] == []


DEPLOY = ROOT / "deploy"


def test_the_manifests_run_without_root_with_probes_and_without_a_gap() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
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


@pytest.mark.matrix
def test_nginx_accepts_its_settings(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=example.com"),
            *("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    settings = (DEPLOY / "nginx.conf").read_text()
    for name, file in (("example.com.pem", "cert.pem"), ("example.com.key", "key.pem")):
        settings = settings.replace(f"/etc/ssl/{name}", str(tmp_path / file))
    for port in ("80", "443"):
        settings = settings.replace(f"listen {port}", f"listen 127.0.0.1:{free_port()}")
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{settings}}}\n"
    )
    checked = subprocess.run(
        [program("nginx"), "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "test is successful" in checked.stderr, checked.stderr


@pytest.mark.matrix
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "keystead.service"
    started = Path(sys.executable).with_name("keystead")
    text = (DEPLOY / "keystead.service").read_text()
    unit.write_text(text.replace("/usr/local/lib/keystead/bin/keystead", str(started)))
    checked = subprocess.run([program("systemd-analyze"), "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "keystead.service" in line]) == (0, [])


@pytest.mark.matrix
def test_the_distributions_install_and_run_in_a_clean_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", tmp_path / "dist"], cwd=ROOT, check=True, capture_output=True
    )
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    [wheel] = (tmp_path / "dist").glob("*.whl")
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    [example] = [code for language, code in _FENCE.findall(READMES[0].read_text()) if language == "python"]
    (tmp_path / "first.py").write_text(example)
    said = [
        subprocess.run([python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for arguments in (["first.py"], ["-m", "keystead", "doctor", "first", "--store", "sqlite:///first.db"])
    ]
    assert said == ["{'laptop'}\nann None\n", "2 keys: no findings\n"]
