"""Settings of the kit for tests, also for tests in several processes."""

from __future__ import annotations

from typing import Any

from keystead import KeyRing

REDIRECT = "http://localhost:8080/done"
SECRET = "webhook secret"
RING = KeyRing({"test": b"k" * 32})
BASE = "http://127.0.0.1:8712"


def table(url: str, **more: Any) -> dict[str, Any]:
    """`[membership]`, with a stand-in for the provider at this address."""
    return {
        "client_id": "keystead",
        "client_secret": "client secret",
        "authorize_url": f"{url}/authorize",
        "token_url": f"{url}/token",
        "identity_url": f"{url}/identity",
        "redirect_uris": (REDIRECT,),
        "webhook_secret": SECRET,
        **more,
    }
