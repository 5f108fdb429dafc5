"""Security headers of pages: Content-Security-Policy, caching and referrer."""

from __future__ import annotations

from typing import Final


def content_policy(*, forms: str = "'none'", **sources: str) -> str:
    """The header `Content-Security-Policy`: no frames, no base, and only the listed sources.

    By default a page may load its own styles and images, and no script. `sources` adds or overrides:
    `content_policy(script="'self'", connect="'self'")`.
    """
    loads = {"style": "'self'", "img": "'self'", **sources}
    named = "; ".join(f"{name}-src {source}" for name, source in loads.items())
    return f"default-src 'none'; {named}; base-uri 'none'; form-action {forms}; frame-ancestors 'none'"


# For pages with a form. With `no-referrer`, as on other responses, browsers submit forms with `Origin: null`.
# `strict-origin` sends the origin without the path, which may hold a code or a token.
PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": content_policy(forms="'self'"),
    "referrer-policy": "strict-origin",
}
# The same, for pages with a script.
SCRIPT_PAGE_HEADERS: Final = PAGE_HEADERS | {
    "content-security-policy": content_policy(forms="'self'", script="'self'", connect="'self'")
}
