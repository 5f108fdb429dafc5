"""What a configuration does not use is not imported: it would take memory in every worker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keystead.server.secrets_file import new_seal_key

HEAVY = frozenset({"httpx2", "hiredis", "joserfc", "obstore", "psycopg", "pymysql", "rich", "sqlalchemy", "typer"})
WORKER = """
import asyncio, json, sys
from keystead.server import server_worker
from keystead.server.app import create_app
from keystead.server.settings import Settings

app = create_app(Settings(mode="production", public_url="https://example.com", **json.loads(sys.argv[1])))

async def run():
    async with app.router.lifespan_context(app):
        pass

asyncio.run(run())
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize(
    ("kits", "used"),
    [
        ((), set()),
        (("widgets",), {"httpx2"}),  # its webhooks
        (("sessiondata",), set()),
    ],
    ids=["no kit", "widgets", "sessiondata"],
)
def test_a_worker_imports_no_package_that_its_kits_and_its_store_do_not_use(
    kits: tuple[str, ...], used: set[str], tmp_path: Path
) -> None:
    settings = {"kits": kits, "store": f"sqlite:///{tmp_path}/app.db", "seal_keys": new_seal_key()}
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(settings)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert worker.returncode == 0, worker.stderr
    assert set(json.loads(worker.stdout)) & HEAVY == used
