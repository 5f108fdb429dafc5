"""Bearer tokens in requests: where the token is read from, and the challenge for refused requests."""

from __future__ import annotations

import logging

import pytest

from keystead import Store
from keystead.errors import BadDeclaration
from keystead.http.bearer import Challenge, admit, check_realm
from keystead.parts.admission import Admitted
from tests.parts.admission.conftest import ANN, App, here
from tests.parts.jwt.test_revoked import Down

NO_TOKEN = 'Bearer realm="api"'
INVALID = 'Bearer realm="api", error="invalid_token", error_description="The token is invalid, expired or revoked."'


async def asked(app: App, *authorization: str) -> Admitted[object] | Challenge:
    return await admit(app.admission, authorization)


@here
@pytest.mark.parametrize("written", ["Bearer {}", "bearer {}", "BEARER   {}", " Bearer {} "])
async def test_a_valid_token_is_admitted_in_any_header_spelling(store: Store, written: str) -> None:
    app = App({"default": store})
    who = await asked(app, written.format(app.token()))
    assert isinstance(who, Admitted)
    assert who.user == ANN


@here
@pytest.mark.parametrize("given", [[], [""], ["Basic YTpi"], ["Bearerx a.b.c"], ["Digest username=a"]])
async def test_a_missing_token_gets_a_challenge_without_error(store: Store, given: list[str]) -> None:
    found = await asked(App({"default": store}), *given)
    assert isinstance(found, Challenge)
    assert (found.status, found.code, found.came) == (401, "NO_TOKEN", False)
    assert found.headers == {"www-authenticate": NO_TOKEN, "cache-control": "no-store"}


@here
async def test_all_token_failures_look_the_same(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App({"default": store})
    good = app.token()
    revoked, gone, ended = app.token(), app.token("7"), app.token()
    await app.tokens.revoke(app.access(revoked))
    forged = good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB")
    answers = [
        await asked(app, text)
        for text in ("Bearer", "Bearer ", "Bearer a b", "Bearer ä", "Bearer made.up.token", f"Bearer {forged}")
    ]
    answers += [await asked(app, f"Bearer {token}") for token in (revoked, gone)]
    await app.tokens.revoke_all("42")
    answers.append(await asked(app, f"Bearer {ended}"))
    expected = {"www-authenticate": INVALID, "cache-control": "no-store"}
    for answer in answers:
        assert answer == Challenge(401, "INVALID_TOKEN", "The token is invalid, expired or revoked.", expected)
    told = [record for record in caplog.records if record.name == "keystead.security"]
    assert [record.__dict__["reason"] for record in told] == [
        *(["malformed"] * 5),
        "signature",
        "revoked",
        "user",
        "revoked",
    ]
    assert {record.levelname for record in told if record.__dict__["reason"] == "revoked"} == {"INFO"}
    assert {record.levelname for record in told if record.__dict__["reason"] != "revoked"} == {"WARNING"}
    assert good[-20:] not in caplog.text
    assert revoked not in caplog.text


@here
async def test_two_headers_are_a_request_that_is_wrong_in_itself(store: Store) -> None:
    app = App({"default": store})
    found = await asked(app, f"Bearer {app.token()}", f"Bearer {app.token()}")
    assert isinstance(found, Challenge)
    assert found.status == 400
    assert 'error="invalid_request"' in found.headers["www-authenticate"]


@here
async def test_an_unavailable_check_is_a_503_with_retry_after(store: Store) -> None:
    app = App({"default": Down(store)})
    away = await asked(app, f"Bearer {app.token()}")
    assert isinstance(away, Challenge)
    assert (away.status, away.code) == (503, "STORE_UNAVAILABLE")
    assert away.headers == {"retry-after": "1", "cache-control": "no-store"}
    app = App({"default": store})
    app.people.error = OSError("a secret of the database")
    unknown = await asked(app, f"Bearer {app.token()}")
    assert isinstance(unknown, Challenge)
    assert (unknown.status, unknown.code, unknown.headers["retry-after"]) == (503, "USER_UNAVAILABLE", "5")
    assert "secret" not in unknown.sentence


@pytest.mark.parametrize("realm", ["", 'a"b', "a\\b", "a\nb", "é"])
def test_a_realm_invalid_in_a_header_is_refused(realm: str) -> None:
    assert check_realm("my app") == "my app"
    with pytest.raises(BadDeclaration, match="without quotes"):
        check_realm(realm)
