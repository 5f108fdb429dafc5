"""What ASGI passes around, besides `starlette.types`."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

App: TypeAlias = Callable[..., Awaitable[None]]  # each framework has types of its own for what it takes
Header: TypeAlias = tuple[bytes, bytes]
