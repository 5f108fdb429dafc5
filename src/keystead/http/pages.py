"""Security headers of pages: which files they load, where they post, who may frame them."""

from __future__ import annotations

from typing import Final


def content_policy(*, forms: str = "'none'", **sources: str) -> str:
    """The header `Content-Security-Policy`: no frame, no base, and no files but those listed.

    A page has its own style sheet and images and runs no script, unless `sources` says otherwise:
    `content_policy(script="'self'", connect="'self'")`.
    """
    loads = {"style": "'self'", "img": "'self'", **sources}
    named = "; ".join(f"{name}-src {source}" for name, source in loads.items())
    return f"default-src 'none'; {named}; base-uri 'none'; form-action {forms}; frame-ancestors 'none'"


# Of a page with a form. With `no-referrer`, which other responses have, a browser says `Origin: null` when a form is
# sent; this way it says where the form comes from, and no more than that: a path may hold a code or a token.
PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": content_policy(forms="'self'"),
    "referrer-policy": "strict-origin",
}
# The same, of a page that runs a script of its own.
SCRIPT_PAGE_HEADERS: Final = PAGE_HEADERS | {
    "content-security-policy": content_policy(forms="'self'", script="'self'", connect="'self'")
}
