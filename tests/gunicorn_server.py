"""gunicorn with four preloaded workers of eight threads each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serving import free_port, listens, wait_until

ROOT = Path(__file__).parents[1]
PATIENCE_S = 120.0


@contextmanager
def gunicorn(app: str, folder: Path, **settings: str) -> Iterator[int]:
    """Serve a WSGI application; yields the port. Its log must have no traceback."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "gunicorn", app, "--preload", "--workers", "4"),
        *("--worker-class", "gthread", "--threads", "8", "--bind", f"127.0.0.1:{port}", "--timeout", "120"),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    with (folder / "gunicorn.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        try:
            wait_until(lambda: listens(port), "gunicorn listens")
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            log.seek(0)
            assert "Traceback" not in log.read()
