"""The CSRF rules for kits, server and middleware."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from keystead.http.cookies import Cookie
from keystead.http.csrf import csrf_cookie, csrf_token, is_cross_site, is_csrf_token, page_origin, refuse_forged
from keystead.http.refusals import Refusal

OWN = "https://app.example"
TOKEN, OTHER_TOKEN = "t" * 43, "o" * 43
COOKIE = csrf_cookie(secure=True)
KEPT = {"cookie": f"{COOKIE.name}={TOKEN}"}


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({}, None),
        ({"origin": OWN}, OWN),
        ({"origin": "HTTPS://App.Example"}, OWN),
        ({"origin": "null", "referer": f"{OWN}/x"}, "null"),
        ({"origin": "", "referer": f"{OWN}/x"}, ""),
        ({"referer": f"{OWN}/x?y=1"}, OWN),
        ({"referer": f"{OWN}@evil.example/"}, f"{OWN}@evil.example"),
        ({"referer": "http://["}, "null"),
        ({"referer": ""}, None),
    ],
)
def test_the_page_origin_comes_from_origin_or_referer(headers: dict[str, str], origin: str | None) -> None:
    assert page_origin(Headers(headers)) == origin


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({"origin": OWN}, False),
        ({"origin": OWN, "sec-fetch-site": "same-origin"}, False),
        ({"origin": ""}, True),
        ({"origin": f"{OWN}:8443"}, True),
        ({"origin": OWN.replace("https", "http")}, True),
        ({"referer": "https://evil.example/"}, True),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": " Cross-Site "}, True),
        ({"sec-fetch-site": "something new"}, True),
    ],
)
def test_a_request_is_cross_site_where_the_browser_does_not_name_this_site(
    headers: dict[str, str], expected: bool
) -> None:
    assert is_cross_site(Headers(headers), (OWN,)) is expected


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"origin": OWN}, None),
        ({"referer": f"{OWN}/login"}, None),
        ({"x-csrf-token": TOKEN, **KEPT}, None),
        (KEPT, TOKEN),
        ({"origin": OWN, **KEPT}, TOKEN),
    ],
)
def test_a_page_of_this_site_passes_by_its_origin_or_the_token(headers: dict[str, str], field: str | None) -> None:
    refuse_forged(Headers(headers), OWN, COOKIE, field)


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, None),
        (KEPT, None),
        ({"sec-fetch-site": "same-origin", **KEPT}, None),
        ({"origin": "https://evil.example", "x-csrf-token": TOKEN, **KEPT}, TOKEN),
        ({"sec-fetch-site": "cross-site", **KEPT}, TOKEN),
        ({"origin": OWN, **KEPT}, OTHER_TOKEN),
        ({"origin": OWN, "x-csrf-token": OTHER_TOKEN, **KEPT}, None),
        ({"x-csrf-token": TOKEN}, None),
        ({"x-csrf-token": "", **KEPT}, None),
        ({"cookie": f"{COOKIE.name}="}, ""),
        ({"cookie": f"{COOKIE.name}=x"}, "x"),
        ({"cookie": f"{COOKIE.name}={TOKEN}; {COOKIE.name}={OTHER_TOKEN}"}, TOKEN),
        (KEPT, "\ud800"),
    ],
)
def test_a_possibly_forged_request_is_refused(headers: dict[str, str], field: str | None) -> None:
    with pytest.raises(Refusal) as refused:
        refuse_forged(Headers(headers), OWN, COOKIE, field)
    assert (refused.value.status, refused.value.code) == (403, "CSRF")
    assert "x-csrf-token" not in refused.value.sentence


def test_in_development_a_refusal_names_the_header_and_the_field_to_send_and_no_token() -> None:
    cookie = csrf_cookie(secure=False)
    own = "http://127.0.0.1:8700"
    with pytest.raises(Refusal) as refused:
        refuse_forged(Headers({"cookie": f"csrf={TOKEN}"}), own, cookie, OTHER_TOKEN, development=True)
    for named in (f"the header Origin: {own}", "the cookie csrf", "the header x-csrf-token", "the field csrf"):
        assert named in refused.value.sentence
    assert TOKEN not in refused.value.sentence
    assert OTHER_TOKEN not in refused.value.sentence
    with pytest.raises(Refusal, match=f"Origin .* must name {own}"):
        refuse_forged(Headers({"origin": "https://evil.example"}), own, cookie, development=True)


def test_a_valid_csrf_token_is_kept_and_an_invalid_one_replaced() -> None:
    assert csrf_token(TOKEN) == TOKEN
    made = {csrf_token(given) for given in (None, "", "x", TOKEN + "x")}
    assert len(made) == 4
    assert all(is_csrf_token(one, one) for one in made)


def test_cookies_are_found_over_several_headers_which_http_2_may_use() -> None:
    headers = Headers(raw=[(b"cookie", b"a=1"), (b"cookie", b"__Host-sid=v"), (b"cookie", b"b=2")])
    assert Cookie("sid").find(headers) == "v"
    assert Cookie("other").find(headers) is None
