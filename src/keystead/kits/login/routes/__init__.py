"""The login kit over HTTP. Routes translate; the service decides.

The membership kit shares three paths with this one. It hands requests over with `logout`, `exchange` and `refresh`.
"""

from keystead.kits.login.routes.request import LoginVisit, refusal_of
from keystead.kits.login.routes.router import KIT, router
from keystead.kits.login.routes.sessions import exchange, logout, refresh

__all__ = ["KIT", "LoginVisit", "exchange", "logout", "refresh", "refusal_of", "router"]
