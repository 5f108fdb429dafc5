"""Routes of a kit, declared one per line, with one translation of service errors into responses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from keystead.http.refusals import Refusal

Translate: TypeAlias = Callable[[Exception], Refusal | None]


@contextmanager
def translated(translate: Translate) -> Iterator[None]:
    """Raise the Refusal that `translate` returns for an error in the block; None leaves the error unchanged."""
    try:
        yield
    except Exception as error:
        refusal = translate(error)
        if refusal is None:
            raise
        raise refusal from None


class KitRouter(APIRouter):
    """`translate` turns errors of the service into a Refusal, on all routes without their own `translate`."""

    def __init__(self, tag: str, translate: Translate, route_class: type[APIRoute] = APIRoute) -> None:
        super().__init__(tags=[tag], route_class=_translated_route(translate, route_class))
        self._own_route_class = route_class

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
            route_class_override=translate and _translated_route(translate, self._own_route_class),
            **options,
        )


def _translated_route(translate: Translate, route_class: type[APIRoute]) -> type[APIRoute]:
    class TranslatedRoute(route_class):  # type: ignore[valid-type, misc]
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_translated(request: Request) -> Response:
                with translated(translate):
                    response: Response = await handle(request)
                return response

            return handle_translated

    return TranslatedRoute
