"""Optional dependencies: which extra installs them, and the one-line error where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from keystead.errors import MissingExtra

# The modules of each extra (`pyproject.toml` has their distributions). "no pq wrapper": psycopg without libpq.
EXTRAS: Final = {
    "redis": ("hiredis",),
    "postgres": ("psycopg", "no pq wrapper"),
    "mysql": ("pymysql",),
    "cloudflare": ("httpx2",),
    "tables": ("sqlalchemy",),
    "blobs": ("obstore",),
    "oauth": ("httpx2", "joserfc"),
    "asgi": ("joserfc", "starlette"),
    "django": ("django",),
    "flask": ("flask", "werkzeug"),
    "limits": ("limits",),
    "litestar": ("litestar",),
    "cli": ("jinja2", "markupsafe", "pydantic_settings", "rich", "typer"),
    "testing": ("anyio", "hypothesis", "pytest"),
    "server": ("babel", "fastapi", "fastapi_swagger", "granian", "prometheus_client", "starlette"),
}


@contextmanager
def from_extra(extra: str, what: str) -> Iterator[None]:
    """Wrap imports that need an extra. Raises MissingExtra, with the command that installs it, if it is missing.

    `what` begins the sentence: `with from_extra("tables", "relational tables"):`. Other import errors pass unchanged.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        if not (error.name or str(error)).startswith(EXTRAS[extra]):
            raise
        raise MissingExtra(f'{what} needs packages that are not installed: pip install "keystead[{extra}]"') from None
