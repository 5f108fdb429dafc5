"""What a newcomer does: from a clean copy of the repository, and from the built distributions."""

import os
import pwd
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copyfile, which

import httpx2
import pytest

import keystead
from tests.built_guide import build_guide
from tests.serving import Keystead, free_port, installed_keystead_serving, program, wait_until
from tests.test_project import committed_files

ROOT = Path(__file__).parents[1]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
NEW_PYTHONS = {"3.14"}  # not in every distribution of Linux yet, so they are tested where they are
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TWO_MINUTES = 120
MOST_COMMANDS = 5
pytestmark = pytest.mark.matrix

# Of somebody who has installed Keystead: wrong types must be errors, which `type: ignore` shows, and right ones known.
TYPED = """\
from typing import assert_type

from keystead import Counter, Keyspace, Value, after, connect, wait


class AppKeys(Keyspace):
    code = Value("code:{code:token}", str, lifetime=after("10m"), doc="a code that works once")
    visits = Counter("visits:{page}", lifetime=after("1d"), doc="visits of a page")


async def consume(keys: AppKeys) -> str | None:
    return assert_type(await keys.code("x7f2").consume(), str | None)


with_store = AppKeys(connect("memory://"))
assert_type(wait(with_store.visits("start").get()), int)
with_store.code("x7f2").add(41)  # type: ignore[arg-type]
with_store.kode  # type: ignore[attr-defined]
"""


def clean_copy(folder: Path) -> Path:
    """What a clone has, without what was built or set up here."""
    for path in committed_files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        copyfile(path, target)
        target.chmod(path.stat().st_mode)
    return folder


def clean_environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    return {**kept, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}


def this_python() -> str:
    """The interpreter that the virtual environment of the tests was made with."""
    return str(sys._base_executable)  # type: ignore[attr-defined]


@cache
def interpreter(version: str) -> str | None:
    """A Python of this version, also one that pyenv or uv has but does not show."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return this_python()
    if found := which(f"python{version}", path="/usr/local/bin:/usr/bin:/bin"):
        return found
    shims = which("pyenv")
    data = Path(os.environ.get("XDG_DATA_HOME", Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/share"))
    kept = [Path(shims).resolve().parents[1] / "versions"] if shims else []
    kept.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR", data / "uv/python")))
    names = (f"{version}.*/bin/python", f"cpython-{version}.*/bin/python{version}")
    return next((str(one) for folder in kept for name in names for one in folder.glob(name)), None)


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_copy(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def distributions(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, as `make dist` builds them."""
    folder = tmp_path_factory.mktemp("built")
    build_guide(source, source / "src/keystead/guide", folder / "trees")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder / "dist", folder=source)
    [wheel], [sdist] = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def test_the_distributions_have_the_guide_the_types_and_the_version(distributions: tuple[Path, Path]) -> None:
    wheel, sdist = distributions
    version = keystead.__version__
    assert (wheel.name, sdist.name) == (f"keystead-{version}-py3-none-any.whl", f"keystead-{version}.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as sources:
        packed = [set(archive.namelist()), {name.partition("/src/")[2] for name in sources.getnames()}]
    for names in packed:
        assert {"keystead/guide/index.html", "keystead/guide/searchindex.js", "keystead/py.typed"} <= names


@pytest.mark.parametrize("version", PYTHONS)
def test_the_distributions_install_and_run_in_a_clean_environment(
    distributions: tuple[Path, Path], tmp_path: Path, version: str
) -> None:
    base = interpreter(version)
    if base is None and version in NEW_PYTHONS:
        pytest.skip(f"this machine has no Python {version}")
    assert base is not None, f"Python {version} is missing: put it on PATH, or run 'pyenv install {version}'"
    run(base, "-m", "venv", tmp_path / "clean", folder=tmp_path)
    python = tmp_path / "clean" / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    for distribution in distributions:
        run(*pip, "install", f"{distribution}[server]", folder=tmp_path)
        assert run(python.with_name("keystead"), "--version", folder=tmp_path) == f"keystead {keystead.__version__}\n"
        with installed_keystead_serving(tmp_path, python=python) as server:
            assert_serves(server.url)
            assert server.stop(signal.SIGTERM) == 0
        if distribution is distributions[0]:
            assert_is_typed(python, tmp_path)
        run(*pip, "uninstall", "--yes", "keystead", folder=tmp_path)


@pytest.mark.parametrize("version", PYTHONS)
def test_every_pinned_package_has_a_wheel_for_each_python(version: str, tmp_path: Path) -> None:
    """So that no compiler is needed, also for the versions that this machine does not have."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
    chosen = ("--python-version", version, "--only-binary=:all:", "--require-hashes")
    run(*pip, *chosen, "-r", ROOT / "requirements/run.txt", "-d", tmp_path, folder=tmp_path)


def assert_serves(url: str) -> None:
    with httpx2.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        assert client.get("/healthz").json() == {"status": "ok", "store": "ok"}
        assert "The Keystead guide" in client.get("/guide").text


def assert_is_typed(python: Path, folder: Path) -> None:
    (folder / "typed.py").write_text(TYPED)
    checker = (sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir", folder / "types")
    run(*checker, "--python-executable", python, "typed.py", folder=folder)


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of pip that take all packages from a folder, so that the time to fetch them does not count."""
    wheels = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements/run.txt", "-d", wheels, folder=wheels)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def cpu_of_children_s() -> float:
    """The time that they worked, which does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def within_two_minutes() -> Iterator[None]:
    before = cpu_of_children_s()
    yield
    assert cpu_of_children_s() - before < TWO_MINUTES


def run_readme(folder: Path, environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Follow the README in a clean copy; what was said, and the commands left that run until Ctrl-C."""
    blocks = BLOCK.findall((folder / "README.md").read_text())
    [example] = [code for language, code in blocks if language == "python"]
    (folder / "first.py").write_text(example)
    [shown] = [code.splitlines() for language, code in blocks if language == "sh" and "make" not in code]
    assert len(shown) <= MOST_COMMANDS
    lasting = [line for line in shown if "keystead console" in line]
    brief = "\n".join(line for line in shown if line not in lasting)
    ran = subprocess.run(
        ["bash", "-e"],
        input=brief.replace("python3 ", f"{this_python()} "),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines(), lasting


@pytest.mark.usefixtures("within_two_minutes")
def test_the_readme_leads_to_a_first_result_in_a_clean_home_as_printed(
    downloaded: dict[str, str], tmp_path: Path
) -> None:
    """With nothing but Python: a clone, an empty home, and a new virtual environment."""
    folder = clean_copy(tmp_path / "clone")
    environment = {**clean_environment(tmp_path / "home"), **downloaded}
    said, lasting = run_readme(folder, environment)
    assert "{'laptop'}" in said
    assert "ann None" in said
    assert said[-1] == "2 keys: no findings"
    said_first = [
        first_line_of(f"source .venv-first/bin/activate; exec {line}", folder, environment) for line in lasting
    ]
    assert [line.split()[0] for line in said_first] == ["Keystead"]


def waited_for_processors_s() -> float:
    """How long some process of this machine could run and did not; 0 where the kernel does not say."""
    pressure = Path("/proc/pressure/cpu")
    return int(re.findall(r"total=(\d+)", pressure.read_text())[0]) / 1e6 if pressure.is_file() else 0


@pytest.mark.parametrize("home", ["first", "second"])
def test_the_readme_takes_less_than_two_minutes_by_the_clock(tmp_path: Path, home: str) -> None:
    """With everything that pip fetches, without its cache. What a busy machine adds does not count."""
    folder = clean_copy(tmp_path / "clone")
    environment = {**clean_environment(tmp_path / home), "PIP_NO_CACHE_DIR": "1"}
    began, waited = time.monotonic(), waited_for_processors_s()
    said, _ = run_readme(folder, environment)
    took = time.monotonic() - began - (waited_for_processors_s() - waited)
    assert "ann None" in said
    assert took < TWO_MINUTES


def first_line_of(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command that runs until Ctrl-C says first."""
    running = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env={**environment, "KEYSTEAD_PORT": str(free_port())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout
    try:
        return running.stdout.readline()
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()


@pytest.mark.usefixtures("within_two_minutes")
def test_make_serve_serves_from_a_clean_clone(downloaded: dict[str, str], tmp_path: Path) -> None:
    folder = clean_copy(tmp_path / "clone")
    port = free_port()
    output = tmp_path / "output.txt"
    environment = {**clean_environment(tmp_path / "home"), **downloaded, "PYTHON": this_python()}
    with output.open("w") as stream:
        process = subprocess.Popen(
            ["make", "serve", f"PORT={port}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Keystead(process, port, output)
    try:
        wait_until(lambda: "Keystead is running" in server.said or process.poll() is not None, "make serve serves")
        assert process.poll() is None, server.said
        with httpx2.Client(base_url=server.url, timeout=60, follow_redirects=True) as client:
            assert client.get("/").status_code == 200
            assert f"make -C {folder} docs" in client.get("/guide").text
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


TUTORIAL_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TUTORIALS = {"en": "tutorial.md", "ja": "ja/tutorial.md", "ko": "ko/tutorial.md"}


@dataclass
class Reader:
    """Somebody who follows the tutorial, beside a checkout. Each block is run by its own shell."""

    folder: Path
    environment: dict[str, str]
    redis_port: int
    said: str = ""

    @property
    def party(self) -> Path:
        return self.folder / "party"

    def run(self, block: str) -> None:
        """With other ports; what it starts has ended before the next block."""
        script = block.replace("6379", str(self.redis_port))
        if "8000" in script:
            script = script.replace("8000", str(free_port())) + "wait\n"
        folder = self.party if self.party.exists() else self.folder
        done = subprocess.run(
            ["bash", "-e"], input=script, cwd=folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout

    def expect(self, block: str) -> None:
        missing = [line for line in block.splitlines() if line not in self.said.splitlines()]
        assert missing == [], self.said

    def deploy(self, unit: str) -> None:
        """As systemd does: checked by it, and its command run with its environment in its folder."""
        at_port = unit.replace("6379", str(self.redis_port)).replace("8000", str(free_port()))
        local = at_port.replace("/srv/party", str(self.party))
        (self.folder / "party.service").write_text(local)
        run(program("systemd-analyze"), "verify", self.folder / "party.service", folder=self.folder)
        variables = dict(one.split("=", 1) for one in re.findall(r"^Environment=(.*)$", local, re.MULTILINE))
        [command] = re.findall(r"^ExecStart=(.*)$", local, re.MULTILINE)
        [port] = re.findall(r"--port (\d+)", command)
        curl = f"curl --silent --retry 30 --retry-connrefused http://127.0.0.1:{port}/healthz"
        redis = f"redis-server --port {self.redis_port} --save '' --daemonize yes"
        stop = f"kill $!; wait; redis-cli -p {self.redis_port} shutdown"
        self.environment |= variables
        self.run(f"{redis}; trap '{stop}' EXIT; python invite.py m5q8; {command} & {curl}")
        assert '{"exists":true}' in self.said


@pytest.mark.parametrize("language", TUTORIALS)
def test_every_step_of_the_tutorial_runs_as_printed(downloaded: dict[str, str], tmp_path: Path, language: str) -> None:
    clean_copy(tmp_path / "keystead")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(this_python())
    path = [tmp_path / "party" / ".venv" / "bin", tmp_path / "bin", "/usr/bin", "/bin"]
    environment = {
        **clean_environment(tmp_path / "home"),
        **downloaded,
        "PATH": os.pathsep.join(map(str, path)),
        "KEYSTEAD_LANGUAGE": language,
    }
    reader = Reader(tmp_path, environment, free_port())
    for kind, name, block in TUTORIAL_BLOCK.findall((ROOT / "docs" / TUTORIALS[language]).read_text()):
        match kind:
            case "python":
                (reader.party / name).write_text(block)
            case "text":
                reader.expect(block)
            case "ini":
                reader.deploy(block)
            case _:
                reader.run(block)
    assert (reader.party / "documents" / "party-keys.md").is_file()
