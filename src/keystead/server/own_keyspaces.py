"""The server's own keyspaces, besides those of its kits."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from keystead.schema import Keyspace

# Their modules by name. Commands that know all kits, such as `keystead doctor`, know these too.
OWN: Final = {
    "schedule": "keystead.parts.schedule.schedule_keys",
    "outbox": "keystead.parts.outbox.outbox_keys",
    "demo": "keystead.demo.demo_keys",
    "gateway": "keystead.gateway.gateway_keys",
    "console": "keystead.console.console_keys",
}

# The modules of the server's own kits: they run beside those of users, and are named in `kits` like them.
OWN_KITS: Final = {"console": "keystead.console"}


def own_keyspaces() -> dict[str, type[Keyspace]]:
    """The keyspaces of the server: each module of `OWN` declares one."""
    from keystead.schema import Keyspace

    return {
        name: next(
            one
            for one in vars(import_module(module)).values()
            if isinstance(one, type) and issubclass(one, Keyspace) and one.__module__ == module
        )
        for name, module in OWN.items()
    }
