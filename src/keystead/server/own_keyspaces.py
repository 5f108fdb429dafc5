"""The server's own keyspaces, besides those of its kits."""

from typing import Final

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
