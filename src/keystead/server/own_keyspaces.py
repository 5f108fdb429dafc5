"""The keyspaces that the server brings itself, beside those of its kits."""

from typing import Final

# The module that declares each of them. `keystead doctor` and its like know them wherever they know all kits.
OWN: Final = {
    "schedule": "keystead.parts.schedule.schedule_keys",
    "outbox": "keystead.parts.outbox.outbox_keys",
    "demo": "keystead.demo.demo_keys",
}
