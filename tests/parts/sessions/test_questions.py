"""What is asked for a token, and what of it stays in memory."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from keystead.errors import BadKey
from keystead.parts.sessions.session_lookup import KEPT_MAX, Questions
from keystead.parts.sessions.session_token import id_of, new_token


def questions() -> Questions:
    return Questions(lambda user, sid: partial(nothing, f"sess:{sid}", f"user:{user}:sessions"))


async def nothing(key: str, listed_in: str) -> None: ...


def token_of(number: int, user: str = "ann") -> str:
    return new_token(number.to_bytes(32, "big"), user)


def test_a_question_names_the_session_and_the_list_of_its_user_each_time_anew() -> None:
    asked = questions()
    token = token_of(1)
    sid = id_of(token)
    question = asked.of(token)
    assert question is not None
    user, named, ask = question
    assert (user, named) == ("ann", sid)
    assert isinstance(ask, partial)
    assert ask.args == (f"sess:{sid}", "user:ann:sessions")
    assert asked.of(token_of(2)) != question
    assert asked.of(token) is question


def test_what_is_no_token_has_no_question_however_often_it_comes() -> None:
    asked = questions()
    for text in ("", "x" * 60, "\ud800", token_of(1) + "x" * 700):
        assert asked.of(text) is None
        assert asked.of(text) is None


def test_a_user_whom_no_key_can_name_has_no_question() -> None:
    def refuse(user: str, sid: str) -> Callable[[], Awaitable[Any]]:
        raise BadKey(user)

    assert Questions(refuse).of(token_of(1)) is None


def test_however_many_tokens_come_few_questions_are_kept() -> None:
    asked = questions()
    for number in range(KEPT_MAX + 100):
        assert asked.of(token_of(number)) is not None
    assert len(vars(asked)["_kept"]) == KEPT_MAX


def test_no_token_stays_in_memory() -> None:
    asked = questions()
    token = token_of(1)
    asked.of(token)
    assert token not in repr(vars(asked))
    assert id_of(token) in repr(vars(asked))
