"""Whether it can answer: `/healthz` for the process and its store, `/readyz` for every store and kit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from keystead.errors import KeysteadError
from keystead.server.errors import RETRY_AFTER_SECONDS
from keystead.server.logs import SERVER
from keystead.stores.base import Store

HEALTH_TIMEOUT_SECONDS: Final = 3.0
NOT_OPEN: Final = "The store is not open yet."


class Health(BaseModel):
    """What `/healthz` answers. `store` is "ok", or one sentence on why it does not answer.

    In production that is "unavailable", and the log says why.
    """

    status: Literal["ok", "unavailable"]
    store: str


class Readiness(BaseModel):
    """What `/readyz` answers: the open kits, and of each role "ok" or one sentence on why its store does not answer.

    In production that is "unavailable", and the log says why.
    """

    status: Literal["ok", "unavailable"]
    stores: dict[str, str]
    kits: list[str]


def health_router() -> APIRouter:
    router = APIRouter()
    router.add_api_route(
        "/healthz",
        _healthz,
        methods=["GET"],
        operation_id="healthz",
        tags=["server"],
        summary="Is the store answering?",
        response_model=Health,
        response_description="The store answers.",
        responses={503: {"model": Health, "description": "The store does not answer; `store` says why."}},
    )
    router.add_api_route(
        "/readyz",
        _readyz,
        methods=["GET"],
        operation_id="readyz",
        tags=["server"],
        summary="Can requests be sent here?",
        response_model=Readiness,
        response_description="Every store answers and every kit is open.",
        responses={503: {"model": Readiness, "description": "Not just now; `stores` says which role and why."}},
    )
    return router


async def _healthz(request: Request) -> JSONResponse:
    """200 when the store answers a cheap command in time, 503 with one sentence otherwise."""
    problem = (await problems(request.app.state, ["default"]))["default"]
    health = Health(status="unavailable" if problem else "ok", store=problem or "ok")
    return _answer(health, ready=not problem)


async def _readyz(request: Request) -> JSONResponse:
    """200 when every store of every role answers and the kits are open, 503 with what is missing otherwise."""
    state = request.app.state
    found = await problems(state, list(state.settings.store_urls))
    ready = state.opened and not any(found.values())
    stores = {role: problem or "ok" for role, problem in found.items()}
    return _answer(
        Readiness(status="ok" if ready else "unavailable", stores=stores, kits=list(state.kits)), ready=ready
    )


def _answer(body: BaseModel, *, ready: bool) -> JSONResponse:
    headers = {"cache-control": "no-store", **({} if ready else {"retry-after": str(RETRY_AFTER_SECONDS)})}
    return JSONResponse(body.model_dump(), status_code=200 if ready else 503, headers=headers)


async def problems(state: Any, roles: list[str]) -> dict[str, str | None]:
    """Why the store of each role does not answer, in one sentence without secrets; None where it does.

    In production it is the word "unavailable", and the sentence is logged.

    All are asked at once, each store once, so that this takes no longer than the slowest of them.
    """
    stores: Mapping[str, Store] = state.stores
    asked = {id(stores[role]): stores[role] for role in roles if role in stores}
    found = dict(zip(asked, await asyncio.gather(*map(_problem_of, asked.values())), strict=True))
    told = {role: found[id(stores[role])] if role in stores else NOT_OPEN for role in roles}
    return told if state.settings.development else {role: _for_strangers(role, why) for role, why in told.items()}


def _for_strangers(role: str, problem: str | None) -> str | None:
    """Whoever reaches a server in production may ask how it is; where its stores are is for the log."""
    if problem is None:
        return None
    SERVER.warning("the store of the role %s does not answer: %s", role, problem)
    return "unavailable"


async def _problem_of(store: Store) -> str | None:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            await store.run([("TIME",)])
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return f"The store did not answer within {HEALTH_TIMEOUT_SECONDS:g} seconds."
    return None
