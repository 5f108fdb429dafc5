"""JWT access tokens: strict verification, key rotation and revocation."""

from keystead.extras import from_extra

with from_extra("oauth", "keystead.parts.jwt"):
    from keystead.parts.jwt.access_tokens import Access, AccessTokens, Denied, DeniedReason, NewAccess
    from keystead.parts.jwt.revoked_tokens import RevokedTokens, UncheckedToken
    from keystead.parts.jwt.signing_keys import Algorithm, SigningKeys

__all__ = [
    "Access",
    "AccessTokens",
    "Algorithm",
    "Denied",
    "DeniedReason",
    "NewAccess",
    "RevokedTokens",
    "SigningKeys",
    "UncheckedToken",
]
