"""A batch as the calls of each key: for stores that treat each key separately."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple, TypeAlias

from keystead.errors import StoreError, StoreUnavailable
from keystead.stores.commands import Call, Reply

Pieces: TypeAlias = list[list[Reply]]


class KeyCall(NamedTuple):
    """A call, or the part of it that is about one key; `place` and `at` are where its reply belongs."""

    place: int
    at: int
    call: Call


def split_by_key(
    calls: list[Call],
    supported: Container[str],
    run_keyless: Callable[[Call], Reply],
    refuse: Callable[[Call], StoreError],
) -> tuple[Pieces, dict[bytes, list[KeyCall]]]:
    """Room for the reply of each call and key, and the calls of each key, in the order of the batch.

    Calls without a key are run at once, and those that are not supported have their error.
    """
    pieces: Pieces = [[None] * max(len(call.keys), 1) for call in calls]
    wanted: dict[bytes, list[KeyCall]] = {}
    for place, call in enumerate(calls):
        if call.spec.name not in supported:
            pieces[place] = [refuse(call)]
        elif not call.keys:
            pieces[place] = [run_keyless(call)]
        elif len(call.keys) == 1:
            wanted.setdefault(call.keys[0], []).append(KeyCall(place, 0, call))
        else:
            for at, key in enumerate(call.keys):
                wanted.setdefault(key, []).append(KeyCall(place, at, Call(call.spec, [key], call.options)))
    return pieces, wanted


def join_replies(call: Call, pieces: list[Reply]) -> Reply:
    """The reply of a command from the replies for its keys."""
    for piece in pieces:
        if isinstance(piece, StoreUnavailable) and call.spec.writes and len(pieces) > 1:
            # Other keys of the command may have been written.
            return StoreUnavailable(f"{piece}; other keys of this command may have been written", "unknown")
        if isinstance(piece, StoreError):
            return piece
    if call.spec.name == "MGET":
        return [value for [value] in pieces]
    return pieces[0] if len(pieces) == 1 else sum(pieces)
