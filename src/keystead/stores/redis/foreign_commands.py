"""Commands outside the language, sent as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from keystead.errors import EngineError, StoreUnavailable
from keystead.stores.commands import Reply
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.redis_connection import pack_command
from keystead.stores.redis.redis_link import RedisLink
from keystead.stores.redis.reply_errors import ReplyError


async def run_foreign(
    link: RedisLink, commands: Sequence[Sequence[str | bytes]], deadline: float, atomic: bool
) -> list[Reply]:
    """The reply of each command, with an EngineError in place of each failure. Nothing is retried once it was sent."""
    loop = asyncio.get_running_loop()
    packed = [pack_command(tuple(command)) for command in commands]
    if atomic:
        packed = [pack_command(("MULTI",)), *packed, pack_command(("EXEC",))]
    while True:
        connection = await link.wait_for_connection(deadline)
        try:
            replies = await connection.send_until(deadline, b"".join(packed), len(packed))
        except ConnectionLost as lost:
            if lost.sent or loop.time() >= deadline:
                raise StoreUnavailable(str(lost), "unknown" if lost.sent else "not-sent") from None
            continue
        return _typed(_of_transaction(replies) if atomic else replies, commands)


def _of_transaction(replies: list[Any]) -> list[Any]:
    """The replies that EXEC returns; if it discarded the transaction, the errors of the commands, or its own."""
    executed = replies[-1]
    if isinstance(executed, list):
        return executed
    return [one if isinstance(one, ReplyError) else executed for one in replies[1:-1]]


def _typed(replies: Sequence[Any], commands: Sequence[Sequence[str | bytes]]) -> list[Reply]:
    return [
        EngineError(str(reply), str(command[0])) if isinstance(reply, ReplyError) else reply
        for reply, command in zip(replies, commands, strict=True)
    ]
