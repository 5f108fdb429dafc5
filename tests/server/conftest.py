"""A server with the kit of these tests, started once per module."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.serving import Keystead, keystead_serving

ROOT = Path(__file__).parents[2]


def notes_serving(
    folder: Path, store: str | None = None, *arguments: str, **settings: str
) -> AbstractContextManager[Keystead]:
    return keystead_serving(
        folder, store, "--kits", "tests.server.notes:KIT", *arguments, **{"PYTHONPATH": str(ROOT), **settings}
    )


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with notes_serving(tmp_path_factory.mktemp("notes")) as running:
        yield running
