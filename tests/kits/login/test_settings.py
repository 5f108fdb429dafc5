"""Settings of the kit, and the errors for invalid ones."""

import re
from typing import Any

import pytest

from keystead.kits.login import KIT, LoginKeys
from keystead.kits.login.service.settings import LONGEST_IDLE
from keystead.schema.lifetime import duration_ms
from keystead.server import Settings
from keystead.server.settings_errors import WrongSettings


def told(**table: Any) -> Any:
    return Settings(store="memory://", tables={"login": table}).of(KIT)


WRONG = {
    "a path of another site": ({"return_to": "//evil.example"}, "a path on this site"),
    "a bare number": ({"idle": "30"}, "LOGIN__IDLE"),
    "an idle time beyond what the store keeps": ({"idle": "31d"}, "30d"),
    "an idle time beyond the end": ({"idle": "30d", "absolute": "1d"}, "must not be longer than absolute"),
    "a bound of near reads without a unit": ({"near": "1"}, "LOGIN__NEAR"),
    "a cap below zero": ({"cap": -1}, "LOGIN__CAP"),
    "a rule that there is not": ({"at_cap": "ask"}, "LOGIN__AT_CAP"),
    "a limit that there is not": ({"limits": {"sign-in": 1}}, "there is no limit"),
    "a limit below zero": ({"limits": {"me": -1}}, "LOGIN__LIMITS__ME"),
    "a setting that there is not": ({"capp": 1}, "did you mean"),
}


@pytest.mark.parametrize(("table", "sentence"), WRONG.values(), ids=WRONG)
def test_an_invalid_setting_is_refused_by_name(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WrongSettings, match=re.escape(sentence)):
        told(**table)


def test_a_client_secret_is_in_no_error_and_no_repr() -> None:
    with pytest.raises(WrongSettings) as wrong:
        told(providers={"acme": {"client_secret": "s3cret", "colour": "s3cret"}})
    assert "s3cret" not in str(wrong.value)
    assert "s3cret" not in repr(told(providers={"discord": {"client_id": "x", "client_secret": "s3cret"}}))


def test_the_longest_idle_timeout_is_the_lifetime_of_the_key() -> None:
    kept = LoginKeys.families["session"].lifetime.on_create(0, None)
    assert duration_ms(LONGEST_IDLE) in kept


def test_production_needs_a_complete_provider() -> None:
    assert any("no sign-in provider" in one for one in KIT.missing(told()))
    acme = {"client_id": "x", "issuer": "https://login.example.com"}
    assert [one.partition(":")[0] for one in KIT.missing(told(providers={"acme": acme}))] == [
        "login.providers.acme.client_secret"
    ]
    assert not KIT.missing(told(providers={"discord": {"client_id": "x", "client_secret": "y"}}))


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        ({"discord": {"client_id": "x"}}, "discord needs client_secret; set DISCORD_CLIENT_SECRET"),
        ({"discrod": {"client_id": "x", "client_secret": "y"}}, "did you mean discord?"),
        ({"acme": {"client_id": "x", "issuer": "acme"}}, "issuer must be a URL"),
        ({"Bad Name": {"client_id": "x"}}, "a provider name consists of a-z, 0-9 and -"),
    ],
)
def test_an_incomplete_provider_is_a_startup_error(providers: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(WrongSettings, match=re.escape(said)):
        told(providers=providers)


def test_sessions_are_read_near_only_if_that_is_set() -> None:
    assert told().policy.near is None
    assert told(near="500ms").policy.near_ms == 500
