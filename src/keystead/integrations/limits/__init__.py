"""Storage for the `limits` library, so for Flask-Limiter and slowapi. Importing it registers the URI schemes."""

from keystead.extras import from_extra

with from_extra("limits", "the storage for limits"):
    from keystead.integrations.limits.limits_storage import AsyncKeysteadStorage, KeysteadStorage

__all__ = ["AsyncKeysteadStorage", "KeysteadStorage"]
