"""Routes of a kit, declared one per line, with one translation of service errors into responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from keystead.http.refusals import Refusal

R = TypeVar("R")

Translate: TypeAlias = Callable[[Exception], Refusal | None]
Context: TypeAlias = Callable[[Request], AbstractContextManager[object]]


class Handling(NamedTuple):
    translate: Translate
    context: Context


@contextmanager
def translate_errors(translate: Translate) -> Iterator[None]:
    """Raise the Refusal that `translate` returns for an error in the block; None leaves the error unchanged."""
    try:
        yield
    except Exception as error:
        refusal = translate(error)
        if refusal is None:
            raise
        raise refusal from None


class KitRoute(APIRoute):
    """A route of a kit, with the error translation and context of its `KitRouter`."""

    handling: ClassVar[Handling]

    def around(self, handle: Callable[[Request], Awaitable[R]]) -> Callable[[Request], Coroutine[Any, Any, R]]:
        """The handler in its context, with errors translated. `keystead.http.direct_calls` uses it too."""
        translate, context = self.handling

        async def handle_translated(request: Request) -> R:
            with context(request), translate_errors(translate):
                return await handle(request)

        return handle_translated

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.around(super().get_route_handler())


class KitRouter(APIRouter):
    """`translate` turns errors of the service into a Refusal, on all routes without their own `translate`. Requests are
    handled inside `context`."""

    def __init__(self, tag: str, translate: Translate, context: Context = nullcontext) -> None:
        super().__init__(tags=[tag], route_class=_route_class(translate, context))
        self._context = context

    def add(
        self,
        route: str,
        endpoint: Callable[..., Any],
        summary: str = "",
        model: Any = None,
        *,
        translate: Translate | None = None,
        **options: Any,
    ) -> None:
        """`add("GET /api/me", me, "Who am I?", MeAnswer)`. Without a summary it is not in the OpenAPI document."""
        method, path = route.split(" ")
        self.add_api_route(
            path,
            endpoint,
            methods=[method],
            response_model=model,
            summary=summary or None,
            include_in_schema=bool(summary),
            route_class_override=translate and _route_class(translate, self._context),
            **options,
        )


def _route_class(translate: Translate, context: Context) -> type[KitRoute]:
    return type("KitRoute", (KitRoute,), {"handling": Handling(translate, context)})
