"""Session lookups: the query for a token, and what stays in memory."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from keystead.errors import BadKey
from keystead.parts.sessions.session_lookup import MAX_CACHED, SessionQueries
from keystead.parts.sessions.session_token import id_of, new_token


def queries() -> SessionQueries[partial[Any]]:
    return SessionQueries(lambda user, sid: partial(nothing, f"sess:{sid}", f"user:{user}:sessions"))


async def nothing(key: str, listed_in: str) -> None: ...


def token_of(number: int, user: str = "ann") -> str:
    return new_token(number.to_bytes(32, "big"), user)


def test_a_query_names_the_session_and_the_list_of_its_user() -> None:
    lookups = queries()
    token = token_of(1)
    sid = id_of(token)
    query = lookups.for_token(token)
    assert query is not None
    user, named, ask = query
    assert (user, named) == ("ann", sid)
    assert isinstance(ask, partial)
    assert ask.args == (f"sess:{sid}", "user:ann:sessions")
    assert lookups.for_token(token_of(2)) != query
    assert lookups.for_token(token) is query


def test_a_malformed_token_has_no_query() -> None:
    lookups = queries()
    for text in ("", "x" * 60, "\ud800", token_of(1) + "x" * 700):
        assert lookups.for_token(text) is None
        assert lookups.for_token(text) is None


def test_a_user_that_no_key_can_name_has_no_query() -> None:
    def refuse(user: str, sid: str) -> Callable[[], Awaitable[Any]]:
        raise BadKey(user)

    assert SessionQueries(refuse).for_token(token_of(1)) is None


def test_the_number_of_cached_queries_is_bounded() -> None:
    lookups = queries()
    for number in range(MAX_CACHED + 100):
        assert lookups.for_token(token_of(number)) is not None
    assert len(vars(lookups)["_cached"]) == MAX_CACHED


def test_no_token_stays_in_memory() -> None:
    lookups = queries()
    token = token_of(1)
    lookups.for_token(token)
    assert token not in repr(vars(lookups))
    assert id_of(token) in repr(vars(lookups))
