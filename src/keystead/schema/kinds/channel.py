"""Channel: pub/sub messages to the current subscribers. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, Unpack, overload

from keystead.errors import BadDeclaration
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family
from keystead.schema.key import Named, number
from keystead.schema.lifetime import never
from keystead.schema.operation import Operation

T = TypeVar("T")


class ChannelKey(Named, Generic[T]):
    """One channel for messages of type T."""

    __slots__ = ()

    def publish(self, message: T) -> Operation[int]:
        """Send it to the current subscribers; returns their number, as far as the store knows.

        In `atomically` it is sent only if everything else took effect.
        """
        data = self.bound.family.message.encode(message, self.key, self.bound.ring)
        return Operation(self.bound, "publish", [("PUBLISH", self.key, data)], number)

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[T]]:
        """`async with channel.subscribe() as messages: async for message in messages: ...`

        At most once: raises StoreUnavailable if messages may have been missed, Unreadable for a message that does not
        fit the family.
        """
        async with self.bound.store.subscribe(self.key) as messages:

            async def decode_messages() -> AsyncIterator[T]:
                async for message in messages:
                    yield self.bound.family.message.decode(message.data, self.key, self.bound.ring)

            yield decode_messages()


class ChannelOptions(TypedDict, total=False):
    """The options of a channel: see those of other families."""

    doc: str
    role: str
    member_of: str | None
    used_by: Any
    changed: str
    naming_exempt: str


class Channel(Family[ChannelKey[T]], Generic[T]):
    """A family of channels: `Channel("notifications:user:{userId}", Notice)`. Nothing is stored: no lifetime."""

    kind: ClassVar[str] = "channel"
    kind_name: ClassVar[str] = "Channel"
    verbs: ClassVar[type[Any]] = ChannelKey

    @overload
    def __init__(self, pattern: str, message: type[T], **options: Unpack[ChannelOptions]) -> None: ...
    @overload  # Literal, Annotated and unions are not classes to a type checker
    def __init__(self: Channel[Any], pattern: str, message: object, **options: Unpack[ChannelOptions]) -> None: ...
    def __init__(self, pattern: str, message: Any, **options: Unpack[ChannelOptions]) -> None:
        if "lifetime" in options:
            raise BadDeclaration(f"{pattern}: a Channel stores nothing, so it has no lifetime; leave it out")
        if "near" in options:
            raise BadDeclaration(f"{pattern}: a Channel stores nothing, so there is nothing to read near; leave it out")
        super().__init__(pattern, lifetime=never("messages are not stored"), **options)
        self.message: Codec[T] = codec_for(message, where=pattern)

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"message": self.message}

    @property
    def value_shape(self) -> str:
        return f"message: {self.message.describe()}"
