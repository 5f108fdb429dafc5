"""What a page of the server may do, as its headers tell a browser."""

from typing import Final


def content_policy(*, forms: str = "'none'") -> str:
    """Pages load only their own style sheet and images, run no script, stand in no frame, and post to `forms`."""
    return "; ".join(
        (
            "default-src 'none'",
            "style-src 'self'",
            "img-src 'self'",
            "base-uri 'none'",
            f"form-action {forms}",
            "frame-ancestors 'none'",
        )
    )


# Of a page with the header in which people sign out. With `no-referrer`, which other answers have, a browser says
# `Origin: null` when a form is sent.
PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": content_policy(forms="'self'"),
    "referrer-policy": "strict-origin",
}
