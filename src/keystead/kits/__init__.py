"""Kits: a keyspace, its operations and its routes for one job, ready to use."""

from typing import Final

# The module that declares the keyspace of each kit.
KITS: Final = {
    "login": "keystead.kits.login.keys",
    "sharing": "keystead.kits.sharing.keys",
    "membership": "keystead.kits.membership.keys",
    "teamwork": "keystead.kits.teamwork.keys",
    "widgets": "keystead.kits.widgets.keys",
    "sessiondata": "keystead.kits.sessiondata.keys",
}

# The module that exports `KIT: Kit` of each kit that has routes. They are imported when the server runs them.
ROUTED: Final = {
    "login": "keystead.kits.login",
    "sharing": "keystead.kits.sharing",
    "membership": "keystead.kits.membership",
    "teamwork": "keystead.kits.teamwork",
    "widgets": "keystead.kits.widgets",
    "sessiondata": "keystead.kits.sessiondata",
}

# The relational tables of each kit that has some: the module, and the name of its `TableSet` there.
TABLES: Final = {
    "membership": ("keystead.kits.membership.service.tables", "MEMBERSHIP_TABLES"),
    "teamwork": ("keystead.kits.teamwork.service.tables", "TEAMWORK_TABLES"),
}

# Where the commands of each kit are that has some, as its `Kit.commands` says: help is shown without a web framework.
COMMANDS: Final[dict[str, str]] = {
    "membership": "keystead.kits.membership.commands:COMMANDS",
    "teamwork": "keystead.kits.teamwork.commands:COMMANDS",
}

# What reads the files of the setting `parameters`: the name of the file, settings, and where each of them is written.
PARAMETERS: Final = "keystead.kits.sessiondata.parameters:read_parameters"

__all__ = ["COMMANDS", "KITS", "PARAMETERS", "ROUTED", "TABLES"]
