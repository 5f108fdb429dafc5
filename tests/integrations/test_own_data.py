"""The data of a session belongs to its request: changes without a verb are gone with the request."""

from typing import Any

import pytest
from pydantic import Field

from keystead import connect
from keystead.integrations.asgi import SessionMiddleware, session_of
from keystead.parts.sessions import Policy, SessionRecord
from tests.integrations.asgi_calls import HasScopeOnly, call


class Cart(SessionRecord):
    items: list[str] = Field(default_factory=list)


@pytest.mark.parametrize("near", [None, "1s"], ids=["far", "near"])
async def test_changes_without_a_verb_last_for_the_request(near: str | None) -> None:
    seen: list[list[str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        session = session_of(HasScopeOnly(scope), Cart)
        if scope["path"] == "/login":
            await session.start(Cart(uid="ann", items=["apple"]))
        else:
            data = session.require()
            seen.append(list(data.items))
            data.items.append("pear")
            assert session.data is data
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with connect("memory://") as store:
        served = SessionMiddleware(app, store=store, model=Cart, policy=Policy(near=near), csrf=False)
        [cookie] = [value for name, value in await call(served, "/login") if name == b"set-cookie"]
        for _ in range(5):
            await call(served, "/me", cookie.partition(b";")[0])
    assert seen == [["apple"]] * 5
