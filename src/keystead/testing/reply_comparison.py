"""Compare replies by value and by type, recursively."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keystead.errors import KeysteadError, StoreError
from keystead.stores import Command, Store


async def replies_of(store: Store, commands: Sequence[Command]) -> list[Any]:
    """The replies of one batch, with an error in place of each command that failed."""
    try:
        return await store.run(commands)
    except StoreError as error:
        if error.replies is None:
            raise
        return error.replies


def shown(reply: Any) -> Any:
    """A reply in a form for which `==` compares types, too, and which reads well in a failed assertion.

    An error becomes its code, since messages differ between stores. Scores compare as numbers: 0.0 equals -0.0.
    """
    match reply:
        case KeysteadError():
            return f"error {reply.code}"
        case list():
            return [shown(part) for part in reply]
        case dict():
            return {key: shown(value) for key, value in reply.items()}
        case bool():
            return f"bool {reply}"
        case float():
            return f"float {reply + 0.0!r}"
        case bytes() | int() | set() | None:
            return reply
    return f"{type(reply).__name__} {reply!r}"
