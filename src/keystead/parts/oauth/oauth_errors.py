"""OAuth errors. No message contains a code, a token or a secret."""

import re

from keystead.errors import KeysteadError

# Lower-case words joined by underscores, as every registered error is. Codes and tokens have capitals or digits.
_ERROR_WORD = re.compile(r"[a-z]{1,30}(?:_[a-z]{1,30}){0,5}")
_LONGEST_ERROR_WORD = 64


def error_word(text: object) -> str | None:
    """The `error` of an OAuth answer or callback, if it is a plain word such as `invalid_grant`; else None.

    Any other text may come from an attacker: it is neither logged nor shown.
    """
    if isinstance(text, str) and len(text) <= _LONGEST_ERROR_WORD and _ERROR_WORD.fullmatch(text):
        return text
    return None


class OAuthError(KeysteadError):
    """The base class of provider errors; `provider` is the name of the provider."""

    code = "oauth"

    def __init__(self, provider: str, sentence: str) -> None:
        super().__init__(f"{provider}: {sentence}")
        self.provider = provider


class BadProvider(OAuthError):
    """The configuration of a provider is invalid. Nothing was sent."""

    code = "bad-provider"


class ProviderRefused(OAuthError):
    """The provider refused the code, the token, or the client. Retrying does not help.

    `error` is its error code, such as `invalid_grant`; None: there is none that is safe to show.
    """

    code = "provider-refused"

    def __init__(self, provider: str, sentence: str, error: str | None = None) -> None:
        super().__init__(provider, sentence if error is None else f"{sentence} ({error})")
        self.error = error


class ProviderUnavailable(OAuthError):
    """The provider is unreachable, timed out, or is temporarily unavailable. Try again later."""

    code = "provider-unavailable"


class BadAnswer(OAuthError):
    """The response of the provider violates the protocol, or is too large."""

    code = "bad-provider-answer"


class BadIdToken(OAuthError):
    """An ID token with an invalid signature or claim. The login is refused."""

    code = "bad-id-token"


class WrongIssuer(OAuthError):
    """A callback from another provider than the login started with (mix-up attack)."""

    code = "wrong-issuer"
