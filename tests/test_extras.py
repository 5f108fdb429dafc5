"""The core needs few packages; whatever needs more says in one line how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from keystead.extras import EXTRAS

ROOT = Path(__file__).parent.parent
ALL = sorted({name for names in EXTRAS.values() for name in names if name.isidentifier()})
CORE = (
    "keystead",
    "keystead.parts.apikeys",
    "keystead.parts.audit",
    "keystead.parts.cache",
    "keystead.parts.feed",
    "keystead.parts.limit",
    "keystead.parts.lock",
    "keystead.parts.outbox",
    "keystead.parts.passwords",
    "keystead.parts.refresh",
    "keystead.parts.schedule",
    "keystead.parts.sessions",
    "keystead.schema.check",
    "keystead.schema.doctor",
    "keystead.stores.backup",
    "keystead.stores.copy",
    "keystead.stores.memcached",
    "keystead.stores.sqlite",
)


def run_without(packages: list[str], code: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python as if these packages were not installed."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, check=False, cwd=cwd)


def test_the_core_imports_and_runs_the_readme_without_any_extra(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = run_without(ALL, "".join(f"import {name}\n" for name in CORE) + example, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'laptop'}\nann None\n"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("redis", "import keystead; keystead.connect('redis://127.0.0.1')"),
        ("postgres", "import keystead; keystead.connect('postgresql://127.0.0.1/x')"),
        ("mysql", "import keystead; keystead.connect('mysql://127.0.0.1/x')"),
        ("cloudflare", "import keystead; keystead.connect('cloudflare-kv://:token@account/namespace')"),
        ("tables", "import keystead.parts.tables.engines"),
        ("blobs", "import keystead.parts.blobs"),
        ("oauth", "import keystead.parts.oauth"),
        ("oauth", "import keystead.parts.jwt"),
        ("oauth", "import keystead.parts.webhook"),
        ("asgi", "import keystead.integrations.asgi"),
        ("flask", "import keystead.integrations.flask"),
        ("limits", "import keystead.integrations.limits"),
        ("litestar", "import keystead.integrations.litestar"),
        ("cli", "import keystead.schema.docs"),
        ("cli", "import keystead.server"),
        ("server", "from keystead.server import create_app"),
        ("server", "from keystead.kits.kit import Kit"),
        ("testing", "import keystead.testing"),
    ],
)
def test_what_needs_an_extra_names_the_command_that_installs_it(extra: str, code: str) -> None:
    own = {name for name in EXTRAS[extra] if name.isidentifier()} - ({"joserfc"} if extra == "asgi" else set())
    done = run_without(sorted(own), code)
    [*_, last] = done.stderr.splitlines()
    assert last.startswith("keystead.errors.MissingExtra: "), done.stderr
    assert last.endswith(f'pip install "keystead[{extra}]"')


def test_the_command_without_its_packages_is_one_line() -> None:
    done = run_without(ALL, "from keystead.__main__ import main; main()")
    assert done.returncode == 2
    assert done.stderr == (
        'keystead: the keystead command needs packages that are not installed: pip install "keystead[cli]"\n'
    )


def test_a_command_without_the_packages_of_the_server_is_one_line() -> None:
    for command in ("serve", "jobs list"):
        code = f"import sys; sys.argv[1:] = {command.split()}; from keystead.__main__ import main; main()"
        done = run_without(["httpx2", "joserfc", "fastapi", "starlette", "granian"], code)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert 'pip install "keystead[server]"' in done.stderr


def test_pyproject_names_every_extra_with_its_packages() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for extra, names in EXTRAS.items():
        [line] = re.findall(rf"^{extra} = \[(.*)\]$", text, re.MULTILINE)
        missing = [name for name in names if name.isidentifier() and name.replace("_", "-") not in line]
        assert missing == ["markupsafe"] * (extra == "cli") + ["starlette"] * (extra == "server"), extra


def test_the_commands_of_the_readme_need_only_the_extra_that_it_installs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "first.py").write_text(example)
    commands = (["check", "first"], ["docs", "first"], ["doctor", "first", "--store", "memory://"])
    others = sorted({name for extra in EXTRAS if extra != "cli" for name in EXTRAS[extra]} - set(EXTRAS["cli"]))
    for arguments in commands:
        code = f"import sys; sys.argv[1:] = {arguments!r}; from keystead.__main__ import main; main()"
        done = run_without([name for name in others if name.isidentifier()], code, tmp_path)
        assert done.returncode == 0, done.stderr
