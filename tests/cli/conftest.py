"""Fixtures for the tests of commands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.cli.filled import fill
from tests.cli.program import Program
from tests.servers import Server


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that a test may pause."""
    with servers.valkey() as running:
        yield running


@pytest.fixture
def full(program: Program) -> dict[bytes, Any]:
    """The store of the program, with keys of all kinds."""
    return fill(program.url)
