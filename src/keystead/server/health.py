"""Whether it can answer: `/healthz` for the process and its store, `/readyz` for every store and kit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from keystead.errors import KeysteadError
from keystead.http.refusals import NO_STORE, RETRY_AFTER_S
from keystead.schema.clock import store_clock_ms
from keystead.server.logs import SERVER
from keystead.stores.store_contract import Store

if TYPE_CHECKING:
    from keystead.parts.tables import Tables

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
    `database` says the same of the relational tables, where a kit has some. `off` has the kits that nobody has
    configured, each with the settings that turn it on; they do not make it unready.

    In production that is "unavailable", and the log says why.
    """

    status: Literal["ok", "unavailable"]
    stores: dict[str, str]
    database: str | None = None  # only where a kit that runs has relational tables
    kits: list[str]
    off: dict[str, str] | None = None  # only where a kit is off


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
    found, of_tables = await asyncio.gather(problems(state, list(state.settings.store_urls)), problem_of_tables(state))
    ready = state.opened and not of_tables and not any(found.values())
    readiness = Readiness(
        status="ok" if ready else "unavailable",
        stores={role: problem or "ok" for role, problem in found.items()},
        database=None if state.tables is None else of_tables or "ok",
        kits=list(state.kits),
        off=state.off or None,
    )
    return _answer(readiness, ready=ready)


def _answer(body: BaseModel, *, ready: bool) -> JSONResponse:
    headers = NO_STORE | ({} if ready else {"retry-after": str(RETRY_AFTER_S)})
    return JSONResponse(body.model_dump(exclude_none=True), status_code=200 if ready else 503, headers=headers)


async def problems(state: Any, roles: list[str]) -> dict[str, str | None]:
    """Why the store of each role does not answer, in one sentence without secrets; None where it does.

    In production it is the word "unavailable", and the sentence is logged.

    All are asked at once, each store once, so that this takes no longer than the slowest of them.
    """
    stores: Mapping[str, Store] = state.stores
    asked = {id(stores[role]): stores[role] for role in roles if role in stores}
    work = [_problem_of(store) for store in asked.values()]
    answers = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)
    found = dict(zip(asked, answers, strict=True))
    told = {role: found[id(stores[role])] if role in stores else NOT_OPEN for role in roles}
    if state.settings.development:
        return told
    return {role: _public_problem(f"the store of the role {role}", why) for role, why in told.items()}


async def problem_of_tables(state: Any) -> str | None:
    """The same of the relational tables; None also where no kit has any."""
    tables: Tables | None = state.tables
    if tables is None:
        return None
    found = await _problem("The database", tables.ping())
    return found if state.settings.development else _public_problem("the database", found)


def _public_problem(what: str, problem: str | None) -> str | None:
    """Production hides where its stores are: anybody can call the health checks. The log has the details."""
    if problem is None:
        return None
    SERVER.warning("%s does not answer: %s", what, problem)
    return "unavailable"


async def _problem_of(store: Store) -> str | None:
    return await _problem("The store", store_clock_ms(store))


async def _problem(what: str, asked: Awaitable[object]) -> str | None:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            await asked
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return f"{what} did not answer within {HEALTH_TIMEOUT_SECONDS:g} seconds."
    return None
