"""Keystead as a web application: settings in, a FastAPI application out."""

from keystead.server.app import create_app
from keystead.server.settings import Settings

__all__ = ["Settings", "create_app"]
