"""Node, and the packages that a test runs in it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.servers.server_process import MissingProgram

_CHECKOUT = Path(__file__).parents[2]


def node_with(name: str) -> tuple[str, Path]:
    """Node itself, and the folder of these packages, to start it in. MissingProgram says how to get them.

    `KEYSTEAD_NODE` names the folder that holds both; without it, it is `.venv-node` in the checkout.
    """
    folder = Path(os.environ.get("KEYSTEAD_NODE") or _CHECKOUT / ".venv-node")
    node, packages = folder / "bin" / "node", folder / name
    if not node.exists() or not (packages / "node_modules").is_dir():
        raise MissingProgram(
            f"{folder} does not hold Node and the packages of {name}: run `scripts/node.sh` in a checkout of Keystead "
            "(`make test` does), and set KEYSTEAD_NODE to its .venv-node to use it from elsewhere"
        )
    return str(node), packages
