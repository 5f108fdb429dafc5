"""HTTP routes of the membership kit."""

from keystead.kits.membership.routes.router import KIT, router

__all__ = ["KIT", "router"]
