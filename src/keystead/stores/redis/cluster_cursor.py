"""The cursor of SCAN in a cluster: it names a node, and the place within that node."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import NamedTuple

from keystead.errors import BadArgument
from keystead.stores.redis.redis_settings import RedisAddress

_LAYOUTS = 1 << 16


class ClusterCursor(NamedTuple):
    """Where a scan of all masters goes on, if they still own the slots that they owned when it began.

    Clients see one number: 0 at the start and at the end, and never in between.
    """

    node: int  # its place among the masters
    masters: int  # how many there are
    at: int  # the cursor of that node
    layout: int  # of which slot belongs to whom

    @classmethod
    def read(cls, cursor: int, owners: Sequence[RedisAddress]) -> ClusterCursor:
        """Raises BadArgument if slots have moved since: keys of these slots could be missed."""
        layout, masters = _layout_of(owners), len(set(owners))
        if cursor == 0:
            return cls(0, masters, 0, layout)
        rest, given = divmod(cursor, _LAYOUTS)
        if given != layout:
            raise BadArgument("slots of the cluster have moved since this cursor was issued; scan again from 0")
        at, node = divmod(rest, masters)
        return cls(node, masters, at, layout)

    def after(self, reply: int) -> int:
        """The cursor for the client, after the node replied with its own."""
        if reply:
            return (reply * self.masters + self.node) * _LAYOUTS + self.layout
        if self.node + 1 == self.masters:
            return 0
        return (self.node + 1) * _LAYOUTS + self.layout


def _layout_of(owners: Sequence[RedisAddress]) -> int:
    """A checksum of which slot belongs to whom."""
    places = {address: place for place, address in enumerate(dict.fromkeys(owners))}
    names = " ".join(map(str, places))
    return crc_hqx(b"".join([b"%d," % places[owner] for owner in owners]), crc_hqx(names.encode(), 0))
