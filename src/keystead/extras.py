"""Optional dependencies: which extra installs them, and the one-line error where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from keystead.errors import MissingExtra

# The modules that an extra brings (`pyproject.toml` names their distributions). "no pq wrapper": psycopg without libpq.
EXTRAS: Final = {
    "redis": ("hiredis",),
    "postgres": ("psycopg", "no pq wrapper"),
    "mysql": ("pymysql",),
    "tables": ("sqlalchemy",),
    "blobs": ("obstore",),
    "oauth": ("httpx2", "joserfc"),
    "asgi": ("joserfc", "starlette"),
    "cli": ("jinja2", "markupsafe", "pydantic_settings", "rich", "typer"),
    "testing": ("anyio", "hypothesis", "pytest"),
    "server": ("fastapi", "fastapi_swagger", "granian", "prometheus_client", "starlette"),
}


@contextmanager
def from_extra(extra: str, what: str) -> Iterator[None]:
    """Around imports that need an extra. Raises MissingExtra, with the command that installs it, where it is missing.

    `what` begins the sentence: `with from_extra("tables", "relational tables"):`. An import that fails for any other
    reason, and a missing part of another extra, are raised as they are.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        if not (error.name or str(error)).startswith(EXTRAS[extra]):
            raise
        raise MissingExtra(f'{what} needs packages that are not installed: pip install "keystead[{extra}]"') from None
