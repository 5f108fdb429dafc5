"""The membership kit over HTTP. Routes translate; the service decides."""

from keystead.kits.membership.routes.router import KIT, router

__all__ = ["KIT", "router"]
