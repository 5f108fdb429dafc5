"""The widgets kit over HTTP: its actions as a table, how a request is read by it, and how it is answered."""

from keystead.kits.widgets.routes.router import KIT, router

__all__ = ["KIT", "router"]
