"""Near reads: replies kept in this process, for reads that may lag behind by a stated bound.

A copy is the replies of one batch of reads. It depends on the keys that were read, and is dropped when one of them
changes, when it expires, or when the store can no longer tell whether it changed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from keystead.stores.commands import TABLE, Call, Reply

T = TypeVar("T")

MAX_BYTES: Final = 32 * 1024 * 1024  # of all copies of a store; those not used lately are dropped first
COPY_MAX_BYTES: Final = MAX_BYTES // 64
_OVERHEAD_BYTES: Final = 400  # of one copy, beside its keys and replies
_PTTL: Final = TABLE["PTTL"]
_MISSING: Final = -2  # the reply of PTTL for a key that does not exist

Identity: TypeAlias = tuple[str | bytes, ...]


class NearRead:
    """A batch of reads, prepared once: `await near.read(read, bound_s)`. One command and one key each.

    copy    the copy that answered it last, which may have been dropped
    parts   for the store: how it is divided among servers
    """

    __slots__ = ("calls", "copy", "identity", "parts")

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.copy: Copy | None = None
        self.parts: Any = None
        identity: list[str | bytes] = []
        for call in calls:
            identity += (call.spec.name, *call.args)
        self.identity: Identity = tuple(identity)

    @property
    def keys(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(call.args[0] for call in self.calls))

    @property
    def with_lifetimes(self) -> list[Call]:
        """The reads, and how long their keys live.

        A copy must not outlive its keys, and a store reports an expired key only when it comes upon it.
        """
        return [*self.calls, *(Call(_PTTL, [key], None) for key in self.keys)]

    def split(self, replies: list[Reply]) -> tuple[list[Reply], float, bool]:
        """The replies of the reads, in how many ms the first of the keys expires, and whether all of them exist."""
        count = len(self.calls)
        lifetimes = replies[count:]
        expires_in_ms = min((left for left in lifetimes if left >= 0), default=math.inf)
        return replies[:count], expires_in_ms, _MISSING not in lifetimes


class Copy:
    """The replies of a read, and until when they hold, by the clock of the store.

    began     when the read began, for copies that hold for a stated time
    copies    where it is kept; None once it was dropped, and then it has no replies
    is_used   whether it was used since others were last dropped to make room
    """

    __slots__ = ("began", "copies", "expires_at", "identity", "is_used", "keys", "replies", "size", "version")

    def __init__(
        self,
        read: NearRead,
        replies: list[Reply],
        expires_at: float,
        version: object = None,
        began: float = 0.0,
    ) -> None:
        self.copies: Copies | None = None
        self.is_used = False
        self.identity = read.identity
        self.keys = read.keys
        self.replies = replies
        self.expires_at = expires_at
        self.version = version
        self.began = began
        self.size = _OVERHEAD_BYTES + 2 * sum(map(len, read.identity)) + sum(map(_size_of, replies))


def _size_of(reply: Reply) -> int:
    if isinstance(reply, bytes):
        return len(reply)
    if isinstance(reply, dict):
        return 100 + sum(_size_of(name) + _size_of(value) for name, value in reply.items())
    return 100 + sum(map(_size_of, reply)) if isinstance(reply, list | set) else 32


class Copies:
    """Copies by what was read, and which of them depend on a key. Bounded by size.

    A read remembers its copy, so that the next one finds it without a lookup, and marks it as used. Of the copies that
    were not used lately, the oldest is dropped first (the CLOCK algorithm).
    """

    def __init__(self) -> None:
        self._by_identity: OrderedDict[Identity, Copy] = OrderedDict()
        self._by_key: dict[bytes, set[Identity]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_identity)

    @property
    def size(self) -> int:
        return self._bytes

    @property
    def keys(self) -> list[bytes]:
        return list(self._by_key)

    def find(self, read: NearRead) -> Copy | None:
        copy = read.copy
        if copy is None or copy.copies is not self:
            copy = read.copy = self._by_identity.get(read.identity)
            if copy is None:
                return None
        copy.is_used = True
        return copy

    def add(self, copy: Copy) -> None:
        self._remove(copy.identity)
        if copy.size > COPY_MAX_BYTES:
            return
        copy.copies = self
        self._by_identity[copy.identity] = copy
        self._bytes += copy.size
        for key in copy.keys:
            self._by_key.setdefault(key, set()).add(copy.identity)
        while self._bytes > MAX_BYTES:
            oldest = next(iter(self._by_identity.values()))
            if oldest.is_used:
                oldest.is_used = False
                self._by_identity.move_to_end(oldest.identity)
            else:
                self._remove(oldest.identity)

    def drop(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            for identity in self._by_key.get(key, set()).copy():
                self._remove(identity)

    def clear(self) -> None:
        for copy in self._by_identity.values():
            _release(copy)
        self._by_identity.clear()
        self._by_key.clear()
        self._bytes = 0

    def _remove(self, identity: Identity) -> None:
        copy = self._by_identity.pop(identity, None)
        if copy is None:
            return
        _release(copy)
        self._bytes -= copy.size
        for key in copy.keys:
            depending = self._by_key[key]
            depending.discard(identity)
            if not depending:
                del self._by_key[key]


def _release(copy: Copy) -> None:
    """Drop it, and its replies with it: reads may still remember the copy."""
    copy.copies, copy.replies = None, []


class NearReads(ABC):
    """The near reads of one store. `hits` and `misses` count them."""

    def __init__(self) -> None:
        self.copies = Copies()
        self.hits = self.misses = 0

    @abstractmethod
    def read(self, read: NearRead, bound_s: float) -> list[Reply] | Awaitable[list[Reply]]:
        """The replies, at most `bound_s` behind the store; without waiting if there is such a copy.

        The caller must not change them. A read that fails raises as `run` does.
        """


class Dropping(Protocol):
    """Near reads whose copies are dropped by key."""

    def drop(self, keys: Iterable[bytes]) -> None: ...


async def dropping(near: Dropping, keys: Collection[bytes], work: Coroutine[Any, Any, T]) -> T:
    """A write of this process: once it is acknowledged, no near read here is from before it."""
    near.drop(keys)
    try:
        return await work
    finally:
        near.drop(keys)


ReadNow: TypeAlias = Callable[[list[Any]], Awaitable[list[Reply]]]  # Any: a Call stands for a command it is made of
