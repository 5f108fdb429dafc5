"""Health checks: `/healthz` for the process and its default store, `/readyz` for every store and kit."""

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
    """The body of `/healthz`. `store` is "ok", or a sentence on why it does not answer.

    In production that sentence is "unavailable", and the log has the reason.
    """

    status: Literal["ok", "unavailable"]
    store: str


class Readiness(BaseModel):
    """The body of `/readyz`: the open kits, and for each role "ok" or a sentence on why its store does not answer.
    `database` is the same for the relational tables of kits. `off` has the unconfigured kits, each with the settings
    that turn it on; they do not make the server unready.

    In production that sentence is "unavailable", and the log has the reason.
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
        responses={503: {"model": Health, "description": "The store does not answer; `store` has the reason."}},
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
        responses={503: {"model": Readiness, "description": "Not ready; `stores` has the role and the reason."}},
    )
    return router


async def _healthz(request: Request) -> JSONResponse:
    """200 if the store answers a cheap command in time, otherwise 503 with the reason."""
    problem = (await problems(request.app.state, ["default"]))["default"]
    health = Health(status="unavailable" if problem else "ok", store=problem or "ok")
    return _health_response(health, ready=not problem)


async def _readyz(request: Request) -> JSONResponse:
    """200 if the stores of all roles answer and the kits are open, otherwise 503 with the reason."""
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
    return _health_response(readiness, ready=ready)


def _health_response(body: BaseModel, *, ready: bool) -> JSONResponse:
    headers = NO_STORE | ({} if ready else {"retry-after": str(RETRY_AFTER_S)})
    return JSONResponse(body.model_dump(exclude_none=True), status_code=200 if ready else 503, headers=headers)


async def problems(state: Any, roles: list[str]) -> dict[str, str | None]:
    """Why the store of each role does not answer, in one sentence without secrets; None if it does.

    In production it is "unavailable", and the sentence is logged. Each store is checked once, all concurrently.
    """
    stores: Mapping[str, Store] = state.stores
    checked = {id(stores[role]): stores[role] for role in roles if role in stores}
    checks = [_problem_of(store) for store in checked.values()]
    results = [await checks[0]] if len(checks) == 1 else await asyncio.gather(*checks)
    found = dict(zip(checked, results, strict=True))
    by_role = {role: found[id(stores[role])] if role in stores else NOT_OPEN for role in roles}
    if state.settings.development:
        return by_role
    return {role: _public_problem(f"the store of the role {role}", why) for role, why in by_role.items()}


async def problem_of_tables(state: Any) -> str | None:
    """The same for the relational tables; None also if no kit has any."""
    tables: Tables | None = state.tables
    if tables is None:
        return None
    found = await _problem("The database", tables.ping())
    return found if state.settings.development else _public_problem("the database", found)


def _public_problem(what: str, problem: str | None) -> str | None:
    """Hide and log the details: in production, anyone can call the health checks."""
    if problem is None:
        return None
    SERVER.warning("%s does not answer: %s", what, problem)
    return "unavailable"


async def _problem_of(store: Store) -> str | None:
    return await _problem("The store", store_clock_ms(store))


async def _problem(what: str, check: Awaitable[object]) -> str | None:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            await check
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return f"{what} did not answer within {HEALTH_TIMEOUT_SECONDS:g} seconds."
    return None
