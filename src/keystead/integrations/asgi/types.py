"""ASGI types besides `starlette.types`."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

App: TypeAlias = Callable[..., Awaitable[None]]  # frameworks differ in their parameter types
Header: TypeAlias = tuple[bytes, bytes]
