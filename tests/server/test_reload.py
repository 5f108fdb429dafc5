"""`keystead serve --reload`: a change of a user's module is served by new workers; a broken one leaves the old ones."""

from pathlib import Path

import httpx2
import pytest

from keystead.server.supervisor import RENEWED
from tests.server.conftest import notes_serving
from tests.server.test_serve import assert_one_sentence, run_keystead
from tests.server.test_workers import workers
from tests.serving import wait_until

KIT = """
from fastapi import APIRouter
from keystead.kits.kit import Kit
from tests.server.notes import KIT as NOTES
from dataclasses import replace

def router() -> APIRouter:
    routes = NOTES.router()
    routes.add_api_route("/edition", lambda: {"edition": "EDITION"}, methods=["GET"])
    return routes

KIT = replace(NOTES, router=router)
"""


@pytest.mark.matrix
def test_a_change_of_a_module_is_served_by_new_workers(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    module = tmp_path / "own" / "own_notes.py"
    module.write_text(KIT.replace("EDITION", "first"))
    paths = f"{Path(__file__).parents[2]}:{tmp_path / 'own'}"
    with notes_serving(
        tmp_path, None, "--reload", "--kits", "own_notes:KIT", PYTHONPATH=paths, KEYSTEAD_HEADER_TIMEOUT="1s"
    ) as server:

        def edition() -> str:
            answer = httpx2.get(f"{server.url}/api/notes/edition", timeout=60)
            assert answer.status_code == 200, answer.text
            said: str = answer.json()["edition"]
            return said

        assert edition() == "first"
        before = workers(server)
        module.write_text("def broken(:\n")
        wait_until(lambda: "a new worker could not start" in server.said, "the new worker has failed")
        assert (workers(server), edition()) == (before, "first")
        module.write_text(KIT.replace("EDITION", "the second"))
        wait_until(lambda: edition() == "the second", "the change is served")
        wait_until(lambda: RENEWED in server.said, "the first worker is gone")
        module.write_text(KIT.replace("EDITION", "the third one"))
        wait_until(lambda: edition() == "the third one", "a second change is served")
        assert "own_notes.py changed" in server.said
        assert server.stop() == 0


def test_it_is_refused_in_production(tmp_path: Path) -> None:
    result = run_keystead(tmp_path, "serve", "--reload", "--production")
    assert result.returncode == 2
    assert_one_sentence(result)
    assert "--reload is for development" in result.stderr
