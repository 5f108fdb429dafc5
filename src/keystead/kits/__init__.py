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

__all__ = ["KITS"]
