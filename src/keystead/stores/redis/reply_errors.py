"""Error replies of a Redis server, however it is reached."""

from __future__ import annotations

from keystead.errors import StoreError, StoreReadOnly, StoreRefused, StoreUnavailable


class ReplyError(Exception):
    """An error reply of the server."""


def refusal(address: object, error: ReplyError) -> StoreError:
    text = str(error)
    word = text.partition(" ")[0]
    if word in (
        "LOADING",
        "MASTERDOWN",
        "BUSY",
        "MISCONF",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "UNKILLABLE",
    ):
        return StoreUnavailable(f"{address} is unavailable: {text}")
    if word == "READONLY":
        return StoreReadOnly(f"{address} is a read-only replica; use the address of its master, or redis+sentinel://")
    if word in ("WRONGPASS", "NOAUTH"):
        return StoreRefused(f"{address} denies access; check user and password of the URL")
    if word == "NOPERM":
        return StoreRefused(f"{address} denies this to the user: {text}")
    return StoreRefused(f"{address} refused the command: {text}")
