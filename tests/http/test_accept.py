"""Content negotiation: which language a browser gets."""

import pytest

from keystead.http.accept import preferred_language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("de", "en"),
        ("ja", "ja"),
        ("JA-JP", "ja"),
        ("ko-KR,en;q=0.5", "ko"),
        ("ko;q=0.4, ja;q=0.5", "ja"),
        ("ja;q=0.5, ko;q=0.5", "ja"),
        ("ja;q=0", "en"),
        ("ja;q=x, ko;q=0.1", "ko"),
        ("ja ; Q = 0.2, ko;q=0.3", "ko"),
        ("*", "en"),
        (",".join(["xx"] * 1000) + ",ja", "en"),
    ],
)
def test_the_preferred_available_language_is_chosen(header: str, language: str) -> None:
    assert preferred_language(header, ("en", "ja", "ko")) == language
