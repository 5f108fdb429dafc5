"""What the decorators of views share: functions and classes, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import isawaitable
from typing import Any, TypeAlias

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from keystead import Store
from keystead.errors import BadDeclaration
from keystead.schema import Bound, Family

View: TypeAlias = Callable[..., Any]
Named: TypeAlias = Callable[[HttpRequest], str]


def for_each_kind(view: View, sync_view: View, async_view: View) -> View:
    """The decorated view: the asynchronous form for asynchronous views, also of classes (`as_view`, and `dispatch`
    with `method_decorator`, which is known by the running event loop)."""
    if iscoroutinefunction(view):
        return wraps(view)(async_view)

    @wraps(view)
    def decorated(request: HttpRequest, *args: Any, **options: Any) -> Any:
        chosen = sync_view if asyncio._get_running_loop() is None else async_view
        return chosen(request, *args, **options)

    return decorated


async def result_of(found: Any) -> Any:
    return await found if isawaitable(found) else found


def bound_to(family: Family[Any] | Bound[Any], store: Store) -> Bound[Any]:
    if isinstance(family, Bound):
        return family
    keyspace = family.keyspace
    if keyspace is None:
        raise BadDeclaration("declare this family in a keyspace, as in ShopKeys.page")
    return keyspace(store).bound(family)
