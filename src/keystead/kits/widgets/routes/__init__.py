"""HTTP API of the widgets kit: the table of actions, request parsing and responses."""

from keystead.kits.widgets.routes.router import KIT, router

__all__ = ["KIT", "router"]
