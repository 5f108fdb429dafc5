"""Flask: sessions, rate limits and cached views on any store. See docs/flask.md."""

from keystead.extras import from_extra

with from_extra("flask", "the Flask integration"):
    from keystead.integrations.cached_page import CachedPage
    from keystead.integrations.flask.flask_session import FlaskSession
    from keystead.integrations.flask.flask_sessions import KeysteadSessions
    from keystead.integrations.flask.flask_views import cached_view, client_address, rate_limit

__all__ = ["CachedPage", "FlaskSession", "KeysteadSessions", "cached_view", "client_address", "rate_limit"]
