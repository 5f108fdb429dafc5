"""Third-party kits: invalid input is a 400, and unreadable data a 409."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Request
from pydantic import BaseModel

from keystead import Keyspace, Value, never
from keystead.kits.kit import Kit, Site
from keystead.server import Settings, create_app


class ThingKeys(Keyspace):
    """Things."""

    thing = Value("thing:{id:hex}", str, lifetime=never("a test"))


class ThingSettings(BaseModel):
    pass


def router() -> APIRouter:
    routes = APIRouter(prefix="/things")

    @routes.get("/misuse")
    async def misuse(request: Request) -> Any:
        return await request.app.state.kits["things"].thing(name="x").get()

    @routes.get("/{id}")
    async def show(request: Request, id: str) -> Any:
        return {"thing": await request.app.state.kits["things"].thing(id).get()}

    @routes.put("/{id}")
    async def keep(request: Request, id: str) -> Any:
        await request.app.state.kits["things"].thing(id).set((await request.json())["thing"])
        return {"ok": True}

    return routes


@asynccontextmanager
async def service(keys: ThingKeys, settings: ThingSettings, site: Site) -> AsyncIterator[ThingKeys]:
    yield keys


KIT = Kit("things", "Things.", ThingKeys, ThingSettings, router, service)


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(Settings(store="memory://", kits=("things",), metrics=False), [KIT])
    async with app.router.lifespan_context(app):
        await app.state.stores["default"].run([("SET", "thing:aa", b"\xff"), ("RPUSH", "thing:bb", "x")])
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            yield client


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    body = answer.json()
    assert body["ok"] is False
    assert body["error"]
    return answer.status_code, body["code"]


async def test_input_that_cannot_become_a_key_or_a_value_is_a_bad_request(http: httpx2.AsyncClient) -> None:
    assert error_of(await http.get("/things/not-hex")) == (400, "BAD_REQUEST")
    half = b'{"thing": "\\ud800"}'
    assert error_of(await http.put("/things/00", content=half)) == (400, "BAD_REQUEST")
    assert error_of(await http.put("/things/00", json={"thing": 7})) == (400, "BAD_REQUEST")
    assert (await http.get("/things/00")).json() == {"thing": None}


async def test_a_wrong_verb_call_is_a_500(http: httpx2.AsyncClient) -> None:
    assert error_of(await http.get("/things/misuse")) == (500, "INTERNAL")


async def test_unreadable_data_is_a_409_and_one_log_line(
    http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="keystead.schema"):
        for id in ("aa", "bb"):
            assert error_of(await http.get(f"/things/{id}")) == (409, "UNREADABLE")
    lines = [record.getMessage() for record in caplog.records if record.name == "keystead.schema"]
    assert [line.split(" ")[0] for line in lines] == ["ThingKeys.thing", "ThingKeys.thing"]
