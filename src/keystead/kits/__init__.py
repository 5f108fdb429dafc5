"""Kits: a keyspace, its operations and its routes for one job, ready to use."""

from typing import Final

_NAMES: Final = ("login", "sharing", "membership", "teamwork", "widgets", "sessiondata")

# The module that declares the keyspace of each kit.
KITS: Final = {name: f"keystead.kits.{name}.keys" for name in _NAMES}

# The module that exports `KIT: Kit` of each kit with routes. The server imports those that it runs.
ROUTED: Final = {name: f"keystead.kits.{name}" for name in _NAMES}

# The module and name of the `TableSet` of each kit with relational tables.
TABLES: Final = {
    "membership": ("keystead.kits.membership.service.tables", "MEMBERSHIP_TABLES"),
    "teamwork": ("keystead.kits.teamwork.service.tables", "TEAMWORK_TABLES"),
}

# `Kit.commands` of each kit with commands, so that help can be shown without importing a web framework.
COMMANDS: Final[dict[str, str]] = {
    "membership": "keystead.kits.membership.commands:COMMANDS",
    "teamwork": "keystead.kits.teamwork.commands:COMMANDS",
}

# The function that reads the files of the setting `parameters`.
PARAMETERS: Final = "keystead.kits.sessiondata.parameters:read_parameters"

__all__ = ["COMMANDS", "KITS", "PARAMETERS", "ROUTED", "TABLES"]
