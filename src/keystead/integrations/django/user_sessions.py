"""The sessions of a user: list them, and end them."""

from __future__ import annotations

from typing import Any

from keystead import wait
from keystead.integrations.django.session_parts import data_sessions, data_sessions_of_loop
from keystead.parts.datasessions import DataRecord, DataSessions
from keystead.parts.sessions import Live


def list_sessions(user: Any) -> list[Live[DataRecord]]:
    """The live sessions of a user, latest sign-in first. `id` is not a secret."""
    return wait(data_sessions().list_for(_id_of(user)))


async def alist_sessions(user: Any) -> list[Live[DataRecord]]:
    return await (await data_sessions_of_loop()).list_for(_id_of(user))


def end_session(user: Any, id: str) -> bool:
    """End one session of a user, by its id in `list_sessions`. False: this user has no such session."""
    return wait(data_sessions().end_id(_id_of(user), id))


async def aend_session(user: Any, id: str) -> bool:
    return await (await data_sessions_of_loop()).end_id(_id_of(user), id)


def end_sessions(user: Any) -> int:
    """End all sessions of a user; returns how many. One atomic step."""
    return wait(data_sessions().end_all(_id_of(user)))


async def aend_sessions(user: Any) -> int:
    return await (await data_sessions_of_loop()).end_all(_id_of(user))


def end_other_sessions(request: Any) -> int:
    """End all sessions of the user of this request but its own; returns how many. 0 if nobody is signed in."""
    return wait(_end_others(data_sessions(), request.session.session_key))


async def aend_other_sessions(request: Any) -> int:
    return await _end_others(await data_sessions_of_loop(), request.session.session_key)


async def _end_others(sessions: DataSessions, session_key: str | None) -> int:
    found = await sessions.load(session_key or "")
    return await sessions.end_others(found) if found else 0


def _id_of(user: Any) -> str:
    """The id under which Django signs in this user; a user id may be given instead."""
    return str(user._meta.pk.value_to_string(user) if hasattr(user, "_meta") else user)
