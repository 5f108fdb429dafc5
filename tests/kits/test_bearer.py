"""Bearer tokens on routes of FastAPI: what a route gets, and what is answered instead of it."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, WebSocket

from keystead import connect
from keystead.http.dependencies import bearer
from keystead.parts.admission import Admission, Admitted
from keystead.server.error_responses import add_error_responses
from tests.parts.admission.conftest import App, User
from tests.parts.jwt.test_revoked import Down

REFUSED = 'Bearer realm="team", error="invalid_token", error_description="The token is invalid, expired or revoked."'


@pytest.fixture
async def own() -> AsyncIterator[App]:
    async with connect("memory://") as store:
        yield App({"default": store})


def routes(own: App, *, server: bool) -> FastAPI:
    """An application with Keystead's answers to errors, or with FastAPI's own."""
    app = FastAPI()
    app.state.admission = own.admission
    if server:
        add_error_responses(app)

    def find(request: Any) -> Admission[User]:
        found: Admission[User] = request.app.state.admission
        return found

    @app.get("/me")
    async def me(who: Annotated[Admitted[User], Depends(bearer(find, realm="team"))]) -> dict[str, Any]:
        return {"user": who.user.name, "sub": who.sub, "plan": who.claims["plan"]}

    @app.get("/closed", dependencies=[Depends(bearer(own.admission, realm="team"))])
    async def closed() -> dict[str, bool]:
        return {"open": True}

    return app


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test")


def sent(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("server", [True, False])
async def test_a_route_gets_the_claims_and_the_user(own: App, server: bool) -> None:
    async with client_of(routes(own, server=server)) as client:
        found = await client.get("/me", headers=sent(own.token()))
        assert found.json() == {"user": "Ann", "sub": "42", "plan": "Pro"}
        assert (await client.get("/closed", headers=sent(own.token()))).status_code == 200


async def test_who_is_not_let_in_is_told_in_the_shape_of_all_errors(own: App) -> None:
    async with client_of(routes(own, server=True)) as client:
        nothing = await client.get("/me")
        assert (nothing.status_code, nothing.json()["code"]) == (401, "NO_TOKEN")
        assert nothing.headers["www-authenticate"] == 'Bearer realm="team"'
        token = own.token()
        await own.tokens.revoke(own.access(token))
        for path in ("/me", "/closed"):
            refused = await client.get(path, headers=sent(token))
            assert refused.status_code == 401
            assert refused.json() == {
                "ok": False,
                "error": "The token is invalid, expired or revoked.",
                "code": "INVALID_TOKEN",
            }
            assert refused.headers["www-authenticate"] == REFUSED
            assert refused.headers["cache-control"] == "no-store"
        page = await client.get("/me", headers={"accept": "text/html"})
        assert page.status_code == 401
        assert page.headers["www-authenticate"] == 'Bearer realm="team"'


async def test_an_application_of_ones_own_answers_with_the_same_status_and_headers(own: App) -> None:
    async with client_of(routes(own, server=False)) as client:
        refused = await client.get("/me", headers=sent("made.up.token"))
        assert refused.status_code == 401
        assert refused.json() == {"detail": "The token is invalid, expired or revoked."}
        assert refused.headers["www-authenticate"] == REFUSED


@pytest.mark.parametrize("server", [True, False])
async def test_while_the_store_is_away_it_is_a_503_with_when_to_come_again(own: App, server: bool) -> None:
    down = App({"default": Down(own.keys.user.store)})
    async with client_of(routes(down, server=server)) as client:
        away = await client.get("/me", headers=sent(down.token()))
        assert away.status_code == 503
        assert away.headers["retry-after"] == "1"
        assert "www-authenticate" not in away.headers
        down.people.error = OSError("away")
    own.people.error = OSError("away")
    async with client_of(routes(own, server=server)) as client:
        unknown = await client.get("/me", headers=sent(own.token()))
        assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("server", [True, False])
async def test_a_websocket_is_closed_before_it_is_accepted(own: App, server: bool) -> None:
    app = routes(own, server=server)

    @app.websocket("/live")
    async def live(socket: WebSocket, who: Annotated[Admitted[User], Depends(bearer(own.admission))]) -> None:
        await socket.accept()
        await socket.close(1000, who.user.name)

    async def said(token: str) -> list[Any]:
        sent: list[Any] = []
        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "websocket", "path": "/live", "headers": headers, "query_string": b"", "subprotocols": []}

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append((message["type"], message.get("code"), message.get("reason")))

        await app(scope, receive, send)
        return sent

    assert (await said(own.token()))[-1] == ("websocket.close", 1000, "Ann")
    assert await said("made.up.token") == [("websocket.close", 1008, "INVALID_TOKEN")]


async def test_the_document_says_that_a_route_takes_a_bearer_token(own: App) -> None:
    document = routes(own, server=True).openapi()
    [scheme] = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"], scheme["bearerFormat"]) == ("http", "bearer", "JWT")
    for path in ("/me", "/closed"):
        assert document["paths"][path]["get"]["security"] == [{"bearer": []}]
        assert "parameters" not in document["paths"][path]["get"]
