"""Session cookies: strict attributes, cleared as they were set, and parsed as browsers send them."""

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead.errors import BadValue
from keystead.http.cookies import Cookie
from keystead.parts.sessions.session_token import USER_MAX_BYTES, new_token

values = st.from_regex(r"\A[A-Za-z0-9._~-]{0,200}\Z")


@dataclass
class Browser:
    """The rules of RFC 6265bis, as far as these headers need them."""

    secure: bool
    host: str = "app.example"
    jar: dict[tuple[str, str, str], str] = field(default_factory=dict)
    session_only: set[str] = field(default_factory=set)

    def takes(self, header: str) -> bool:
        """Apply a Set-Cookie header. False: it is ignored."""
        pair, *parts = header.split(";")
        name, _, value = pair.strip().partition("=")
        attributes = {key.strip().lower(): given.strip() for key, _, given in (part.partition("=") for part in parts)}
        if len(name) + len(value) > 4096:
            return False
        if "secure" in attributes and not self.secure:
            return False
        if name.lower().startswith("__host-") and not (
            self.secure and "secure" in attributes and attributes.get("path") == "/" and "domain" not in attributes
        ):
            return False
        if name.lower().startswith("__secure-") and not (self.secure and "secure" in attributes):
            return False
        place = (name, attributes.get("domain", self.host), attributes.get("path", "/the/folder/of/the/page"))
        if "max-age" in attributes and int(attributes["max-age"]) <= 0:
            self.jar.pop(place, None)
            return True
        self.jar[place] = value
        self.session_only.discard(name)
        if "max-age" not in attributes:
            self.session_only.add(name)
        return True

    @property
    def sends(self) -> str:
        return "; ".join(f"{name}={value}" for (name, _, _), value in self.jar.items())


@pytest.mark.parametrize(
    ("cookie", "age", "header"),
    [
        (Cookie("sid"), 60, "__Host-sid=v; Max-Age=60; Path=/; HttpOnly; Secure; SameSite=Lax"),
        (Cookie("sid"), None, "__Host-sid=v; Path=/; HttpOnly; Secure; SameSite=Lax"),
        (Cookie("sid", secure=False), 60, "sid=v; Max-Age=60; Path=/; HttpOnly; SameSite=Lax"),
    ],
)
def test_a_cookie_is_for_this_host_alone_and_no_script_reads_it(cookie: Cookie, age: int | None, header: str) -> None:
    assert cookie.set("v", age) == header


@pytest.mark.parametrize("secure", [True, False])
def test_what_is_taken_away_has_the_attributes_with_which_it_was_set(secure: bool) -> None:
    cookie = Cookie("sid", secure=secure)
    put, away = cookie.set("v", 60), cookie.clear()
    assert away.partition("Max-Age=0")[2] == put.partition("Max-Age=60")[2]


@pytest.mark.parametrize("secure", [True, False])
@given(value=values)
def test_a_browser_stores_sends_and_deletes_the_cookie(secure: bool, value: str) -> None:
    cookie, browser = Cookie("sid", secure=secure), Browser(secure)
    assert browser.takes(cookie.set(value, 60))
    assert cookie.read(browser.sends) == value
    assert browser.session_only == set()
    assert browser.takes(cookie.clear())
    assert browser.jar == {}
    assert cookie.read(browser.sends) is None


def test_on_plain_http_only_the_development_cookie_is_accepted() -> None:
    browser = Browser(secure=False)
    assert not browser.takes(Cookie("sid").set("v"))
    assert browser.takes(Cookie("sid", secure=False).set("v"))
    assert browser.session_only == {"sid"}


@pytest.mark.parametrize("secure", [True, False])
def test_a_cookie_has_4096_bytes_at_most_because_a_browser_would_drop_a_larger_one(secure: bool) -> None:
    cookie, browser = Cookie("sid", secure=secure), Browser(secure)
    longest = "x" * (4096 - len(cookie.name))
    assert browser.takes(cookie.set(longest))
    assert not browser.takes(f"{cookie.name}={longest}x; Path=/; Secure")
    with pytest.raises(BadValue, match="more than 4096 bytes"):
        cookie.set(longest + "x")


def test_every_token_of_a_session_fits() -> None:
    token = new_token(bytes(32), "\U0010ffff" * (USER_MAX_BYTES // 4))
    cookie = Cookie("sid")
    assert cookie.read(cookie.set(token).partition(";")[0]) == token


@pytest.mark.parametrize(
    "value", ["a b", "a;b", "a,b", 'a"b', "a\\b", "a\r\nSet-Cookie: x=y", "é", "\x00", "a=b", "a\n"]
)
def test_a_value_that_a_cookie_does_not_keep_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(BadValue, match="a character that is not allowed in a cookie") as refused:
        Cookie("sid").set(value)
    assert value not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a;b", "é", "sid\n", "a.b"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match="is not a cookie name"):
        Cookie(name)


@pytest.mark.parametrize("name", ["__Host-sid", "__host-sid", "__Secure-sid", "__Http-sid"])
def test_a_name_with_a_prefix_is_refused_because_browsers_have_rules_for_it(name: str) -> None:
    with pytest.raises(BadValue, match="use a plain name"):
        Cookie(name)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("", None),
        ("a=1; b=2", None),
        ("a=1; __Host-sid=v; b=2", "v"),
        ("__Host-sid=v;a=1", "v"),
        ('__Host-sid="v"', "v"),
        ("__Host-sid=", ""),
        ("a=1;\t __Host-sid=v \t;b=2", "v"),
        ("__Host-sid =v", None),
        ("__Host-sid=v; __Host-sid=v", "v"),
        ("__Host-sid=first; __Host-sid=second", None),
        ("x__Host-sid=v", None),
        ("__Host-sid2=v", None),
        ("__host-sid=v", None),
        ("a=__Host-sid=v", None),
        ("sid=v", None),
    ],
)
def test_the_cookie_is_parsed_and_nothing_else_is_mistaken_for_it(header: str, value: str | None) -> None:
    assert Cookie("sid").read(header) == value


@pytest.mark.parametrize("byte", [*range(1, 9), *range(10, 32), *range(127, 256)])
def test_a_name_that_only_looks_like_ours_is_another_name_which_any_host_of_the_domain_can_set(byte: int) -> None:
    """Without the prefix, a sibling host can set it, also for a longer path than ours."""
    odd = bytes([byte]).decode("latin-1")
    for planted in (f"{odd}__Host-sid=planted", f"__Host-sid{odd}=planted"):
        assert Cookie("sid").read(planted) is None
        assert Cookie("sid").read(f"{planted}; __Host-sid=own") == "own"


def test_without_the_prefix_the_first_of_several_counts_which_is_the_most_specific() -> None:
    assert Cookie("sid", secure=False).read("sid=first; sid=second") == "first"


@given(header=st.text())
def test_no_client_input_is_an_unhandled_error(header: str) -> None:
    found = Cookie("sid").read(header)
    assert found is None or isinstance(found, str)


@given(parts=st.lists(st.sampled_from(["sid=", "one", "; ", ";", " ", "\t", '"', "xsid=two", "a=b", "=", "\xa0"])))
def test_the_usual_header_is_parsed_as_any_other(parts: list[str]) -> None:
    header = "".join(parts)
    cookie = Cookie("sid", secure=False)
    found = [value.strip(" \t").strip('"') for value in re.findall(r"(?:^|;)[ \t]*sid=([^;]*)", header)]
    assert cookie.read(header) == (found[0] if found else None)
