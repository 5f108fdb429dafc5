"""PKCE, Proof Key for Code Exchange (RFC 7636): only the client that started a login can finish it."""

from secrets import token_urlsafe

from keystead.parts.digest import digest

_VERIFIER_BYTES = 32


def new_verifier() -> str:
    """32 random bytes in base64url: 43 characters. Keep it until the code is exchanged."""
    return token_urlsafe(_VERIFIER_BYTES)


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier, sent to the provider when the login starts."""
    return digest(verifier)
