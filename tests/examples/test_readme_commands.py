"""The commands in the README of each example, run as printed, in a copy of its folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests import servers
from tests.examples.agreeing_browser import AGREES
from tests.real_servers import redis_server
from tests.serving import environment, free_port, listens, wait_until

__all__ = ["redis_server"]

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.matrix
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What runs until Ctrl-C, by the port that it listens on.
LASTING = {
    "granian": "8000",
    "http.server": "8000",
    "flask --app": "5000",
    "keystead serve": "8700",
    "keystead gateway shop": "8700",
    "npm start": "3000",
}
SETS_UP = ("pip install", "npm install", "cd ", "export ")


@dataclass
class Terminals:
    """As many as needed: what runs until Ctrl-C has one of its own until its port is needed again."""

    folder: Path
    variables: dict[str, str]
    replaced: dict[str, str]
    ports: dict[str, str] = field(default_factory=lambda: {port: str(free_port()) for port in set(LASTING.values())})
    said: list[str] = field(default_factory=list)
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def _environment(self) -> dict[str, str]:
        tools = str(Path(sys.executable).parent)
        own = {
            "PATH": os.pathsep.join([*self.variables.get("PATH", "").split(os.pathsep), tools, os.environ["PATH"]]),
            "KEYSTEAD_PORT": self.ports["8700"],
            "GRANIAN_PORT": self.ports["8000"],
            "FLASK_RUN_PORT": self.ports["5000"],
            "PORT": self.ports["3000"],
            "APP_SERVER": f"http://127.0.0.1:{self.ports['8700']}",
        }
        return environment({**self.variables, **own})

    def type(self, line: str) -> None:
        for printed, real in {**self.ports, **self.replaced}.items():
            line = line.replace(printed, real)
        port = next((self.ports[port] for part, port in LASTING.items() if part in line), None)
        if line.startswith("keystead watch "):
            self._watch(line)
        elif port is None:
            self._run(line)
        else:
            self._start(line, port)

    def _run(self, line: str) -> None:
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        examines = "doctor" in line  # which exits with 1 if it finds something
        assert done.returncode in ({0, 1} if examines else {0}), f"{line}\n{done.stdout}{done.stderr}"
        self.said += done.stdout.splitlines()

    def _watch(self, line: str) -> None:
        """Until it says that it watches; then Ctrl-C."""
        command = ["bash", "-c", f"exec {line}"]
        output = self.folder / "watch.txt"
        with output.open("w") as stream:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=stream, stderr=subprocess.STDOUT
            )
        wait_until(lambda: "watching " in output.read_text() or process.poll() is not None, f"{line} watches")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, output.read_text()

    def _start(self, line: str, port: str) -> None:
        self._stop(port)
        command = ["bash", "-c", f"exec {line}" if "=" not in line.split()[0] else f"exec env {line}"]
        output = (self.folder / f"{port}.txt").open("w")
        with output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, text=True, stdout=output, stderr=subprocess.STDOUT
            )
        self.running[port] = process
        wait_until(lambda: listens(int(port)) or process.poll() is not None, f"{line} listens")
        assert process.poll() is None, Path(output.name).read_text()

    def _stop(self, port: str) -> None:
        if process := self.running.pop(port, None):
            process.terminate()
            process.wait(60)

    def close(self) -> None:
        for port in list(self.running):
            self._stop(port)


def commands_of(readme: str) -> list[str]:
    lines = [re.sub(r"(^|\s+)# .*", "", line) for block in BLOCK.findall(readme) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(SETS_UP)]


@contextmanager
def copied(
    example: str, folder: Path, variables: Mapping[str, str] = {}, replaced: Mapping[str, str] = {}
) -> Iterator[Terminals]:
    shutil.copytree(EXAMPLES / example, folder / example, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    terminals = Terminals(folder / example, {**variables, "HOME": str(folder)}, dict(replaced))
    try:
        yield terminals
    finally:
        terminals.close()


def follow(terminals: Terminals, then: Callable[[str], None] = lambda line: None) -> None:
    readme = (terminals.folder / "README.md").read_text()
    for line in commands_of(readme):
        terminals.type(line)
        then(line)


def test_the_shop(tmp_path: Path) -> None:
    with copied("shop", tmp_path) as terminals:

        def look(line: str) -> None:
            if "granian" in line:
                assert httpx2.get(f"http://127.0.0.1:{terminals.ports['8000']}", timeout=60).status_code == 200

        follow(terminals, look)
        assert "no findings" in terminals.said[-1]


def test_the_blog(tmp_path: Path) -> None:
    with copied("blog", tmp_path) as terminals:
        terminals.variables["BLOG_SERVER"] = address = f"http://127.0.0.1:{terminals.ports['8700']}"
        follow(terminals)
        page = httpx2.get(f"http://127.0.0.1:{terminals.ports['8000']}/first-post.html").text
        assert f"{address}/" in page


def test_the_desktop_program(tmp_path: Path) -> None:
    (tmp_path / "agrees.py").write_text(AGREES)
    browser = {"BROWSER": f"{sys.executable} {tmp_path}/agrees.py %s &"}
    with copied("desktop", tmp_path, browser) as terminals:
        follow(terminals)
        assert [line for line in terminals.said if "tokens this month" in line]
        assert terminals.said[-1] == "Signed out."


def test_flask_and_an_existing_redis(tmp_path: Path, redis_server: servers.Server) -> None:
    redis_server.ask("FLUSHALL")
    variables = {"SHOP_REDIS": redis_server.url}
    database = redis_server.url.rpartition("/")[0]
    with copied("flask_redis", tmp_path, variables, {"redis://localhost:6379": database}) as terminals:

        def use_it_a_little(line: str) -> None:
            if "flask" in line:
                with httpx2.Client(base_url=f"http://127.0.0.1:{terminals.ports['5000']}", timeout=60) as client:
                    for user in ("ann", "bob", "cem"):
                        token = client.post("/login", data={"user": user}).json()["token"]
                        login = {"authorization": f"Bearer {token}"}
                        assert client.post("/cart/apple", headers=login).status_code == 200
                        assert client.get("/product/apple").status_code == 200

        follow(terminals, use_it_a_little)
        assert [line for line in terminals.said if "14 passed" in line]


def test_the_gateway_and_its_typescript(tmp_path: Path) -> None:
    node, packages = servers.node_with("upstash_clients")
    npm = tmp_path / "npm"  # runs what package.json names, as npm does
    npm.write_text(f'#!/bin/sh\nexec sh -c "$({node} -p \'require("./package.json").scripts.start\')"\n')
    npm.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(packages / "node_modules/.bin"), str(Path(node).parent)])
    with copied("gateway", tmp_path, {"PATH": path}) as terminals:
        (terminals.folder / "web/node_modules").symlink_to(packages / "node_modules")
        readme = (terminals.folder / "README.md").read_text()
        for line in commands_of(readme):
            if "npm start" in line:
                token = next(word for word in terminals.said[-1].split() if len(word) > 30)
                address = f"http://127.0.0.1:{terminals.ports['8700']}"
                terminals.variables |= {"UPSTASH_REDIS_REST_URL": address, "UPSTASH_REDIS_REST_TOKEN": token}
                terminals.type(f"env --chdir=web {line}")
            else:
                terminals.type(line)
        [expected] = OUTPUT.findall(readme)
        assert [line for line in expected.splitlines() if line not in terminals.said] == []
        assert (terminals.folder / "web/keys.ts").read_text() == (EXAMPLES / "gateway/web/keys.ts").read_text()
