"""What settings of kits are made of, as the environment and keystead.toml give it."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from keystead.kits.membership import KIT as MEMBERSHIP
from keystead.kits.setting_types import Duration, LimitsByName, Words, check_limit_names
from keystead.kits.sharing import KIT as SHARING
from keystead.kits.widgets import KIT as WIDGETS
from keystead.server import Settings
from keystead.server.settings_errors import WrongSettings


class Given(BaseModel):
    kept: Duration = "1d"
    words: Words = ()
    limits: Annotated[LimitsByName, check_limit_names({"read": 5, "write": 1})] = {}


@pytest.mark.parametrize(
    ("variable", "kit", "setting"),
    [
        ("KEYSTEAD_MEMBERSHIP__REDIRECT_URIS", MEMBERSHIP, "redirect_uris"),
        ("KEYSTEAD_WIDGETS__ORIGINS", WIDGETS, "origins"),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "https://a.example,https://b.example",
        " https://a.example , https://b.example ,",
        '["https://a.example", "https://b.example"]',
    ],
)
def test_a_list_in_the_environment_is_words_with_commas_or_json(
    variable: str, kit: Any, setting: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(Settings().of(kit), setting) == ("https://a.example", "https://b.example")


def test_a_list_that_is_no_json_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTEAD_SHARING__ALLOWED_HOSTS", '["a.example"')
    with pytest.raises(WrongSettings, match="KEYSTEAD_SHARING__ALLOWED_HOSTS"):
        Settings().of(SHARING)


def test_what_is_no_duration_and_no_limit_is_said() -> None:
    assert Given(kept="90d", words=("a",), limits={"read": 0}).limits == {"read": 0}
    for wrong, said in (
        ({"kept": "soon"}, "soon"),
        ({"limits": {"raed": 1}}, "there is no limit 'raed'; there are read, write"),
        ({"limits": {"read": -1}}, "greater than or equal to 0"),
    ):
        with pytest.raises(ValidationError, match=said):
            Given.model_validate(wrong)
