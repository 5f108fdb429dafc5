"""Log formatting: error chains, and fields of security events."""

import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from keystead.server.logs import log_failure, set_up_logs

SECURITY = logging.getLogger("keystead.security")


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Restore the loggers."""
    root = logging.getLogger("keystead")
    before = root.handlers, root.level, root.propagate
    yield
    root.handlers, root.level, root.propagate = before


def raise_and_catch(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("form", ["text", "json"])
def test_cyclic_error_chains_are_logged_once(form: Literal["text", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(form, "info", development=True)
    itself = ValueError("itself")
    log_failure(raise_and_catch(itself, itself))
    first, second = ValueError("first"), ValueError("second")
    second.__cause__ = first
    log_failure(raise_and_catch(first, second))
    said = capsys.readouterr().err
    assert [said.count(f"ValueError: {name}") for name in ("itself", "first", "second")] == [1, 1, 1]


def test_a_long_error_chain_is_cut_and_group_members_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("text", "info", development=True)
    error: BaseException = ValueError("0")
    for number in range(1, 1_000):
        error = raise_and_catch(ValueError(str(number)), error)
    log_failure(error)
    said = capsys.readouterr().err
    assert "ValueError: 999" in said
    assert said.count("caused by") < 100
    log_failure(raise_and_catch(ExceptionGroup("several", [KeyError("left"), OSError("right")])))
    said = capsys.readouterr().err
    assert "KeyError: 'left'" in said
    assert "OSError: right" in said


@pytest.mark.parametrize("level", ["warning", "info"])
def test_an_event_keeps_its_fields_in_both_forms(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"event": "bad-state", "provider": "discord", "client": "192.0.2.1", "count": 2}
    set_up_logs("json", "info", development=False)
    getattr(SECURITY, level)("refused", extra=fields)
    line = json.loads(capsys.readouterr().err)
    assert {name: line[name] for name in fields} == fields
    set_up_logs("text", "info", development=False)
    getattr(SECURITY, level)("refused", extra=fields)
    assert capsys.readouterr().err.endswith(
        f" {level} refused event=bad-state provider=discord client=192.0.2.1 count=2\n"
    )


def test_a_value_cannot_look_like_another_field_or_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("text", "info", development=False)
    SECURITY.info("refused", extra={"event": "x", "provider": "a event=login\nb"})
    assert capsys.readouterr().err.endswith(' refused event=x provider="a event=login\\nb"\n')


def test_an_event_names_the_user_and_the_chain_that_it_concerns(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"event": "refresh-reused", "reason": "stale", "user": "user 42", "chain": "abc", "client": "192.0.2.7"}
    set_up_logs("json", "info", development=False)
    SECURITY.warning("a token was used again", extra=fields)
    assert fields.items() <= json.loads(capsys.readouterr().err).items()
    set_up_logs("text", "info", development=False)
    SECURITY.warning("a token was used again", extra=fields)
    line = capsys.readouterr().err
    assert 'user="user 42"' in line
    assert "chain=abc" in line
