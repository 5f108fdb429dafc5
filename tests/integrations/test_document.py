"""The example of docs/middleware.md, served by a real server."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import httpx2
import pytest

from tests.integrations.serving import ROOT
from tests.serving import environment, free_port, keystead_command, listens, wait_until


@pytest.mark.matrix
def test_the_example_signs_a_user_in_and_out(tmp_path: Path) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/middleware.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(code)
    port, program = free_port(), Path(sysconfig.get_path("scripts")) / "granian"
    env = environment({"PYTHONPATH": str(ROOT / "src")})
    with (tmp_path / "output.txt").open("wb") as output:
        server = subprocess.Popen(
            [program, "--interface", "asgi", "--port", str(port), "shop:app"],
            cwd=tmp_path, env=env, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        wait_until(lambda: listens(port), "the example listens")
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as browser:
            assert browser.get("/me").status_code == 401
            headers = {"x-csrf-token": browser.get("/form").json()["csrf"]}
            assert browser.post("/login?user=ann").status_code == 403
            assert browser.post("/login?user=ann", headers=headers).json() == {"ok": True}
            assert browser.post("/theme?name=dark", headers=headers).json() == {"ok": True}
            found = browser.get("/me").json()
            assert (found["uid"], found["name"], found["theme"]) == ("ann", "Ann", "dark")
            assert browser.post("/logout", headers=headers).json() == {"ok": True}
            assert browser.get("/me").status_code == 401
    finally:
        server.terminate()
        server.wait(300)
    for command in (["check", "shop:VisitKeys"], ["doctor", "shop:VisitKeys", "--store", "sqlite:///shop.db"]):
        done = subprocess.run(
            keystead_command(*command), cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
