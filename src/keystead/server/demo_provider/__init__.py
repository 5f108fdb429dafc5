"""A provider to sign in at with no account anywhere: for development only, and refused in production."""

from keystead.server.demo_provider.keys import DemoCode, DemoGrant, DemoKeys
from keystead.server.demo_provider.routes import DemoInProduction, demo_provider, demo_router

__all__ = ["DemoCode", "DemoGrant", "DemoInProduction", "DemoKeys", "demo_provider", "demo_router"]
