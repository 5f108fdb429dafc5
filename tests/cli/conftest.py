"""What the tests of the commands share."""

from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
