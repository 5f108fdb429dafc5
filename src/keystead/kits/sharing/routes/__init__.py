"""The sharing kit over HTTP. Routes translate; the service decides."""

from keystead.kits.sharing.routes.router import KIT, router

__all__ = ["KIT", "router"]
