"""The contents of a store, read without the code under test; and stores with every kind of key."""

import struct
from typing import Any

from keystead import Store
from keystead.stores import Command

DAY_MS = 86_400_000
READS: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"list": ("LRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}


async def now_ms(store: Store) -> int:
    [(seconds, micros)] = await store.run([("TIME",)])
    return int(seconds) * 1000 + int(micros) // 1000


async def contents(store: Store) -> dict[bytes, tuple[bytes, int, Any]]:
    """Every key with its kind, its deadline and its value."""
    keys = sorted({key async for page in store.scan() for key in page})
    kinds = await store.run([("TYPE", key) for key in keys])
    deadlines = await store.run([("PEXPIRETIME", key) for key in keys])
    commands: list[Command] = []
    for key, kind in zip(keys, kinds, strict=True):
        name, *rest = READS[kind]
        commands.append((name, key, *rest))
    values = await store.run(commands)
    return {key: (kind, at, value) for key, kind, at, value in zip(keys, kinds, deadlines, values, strict=True)}


async def emptied(store: Store) -> None:
    async for page in store.scan():
        if page:
            await store.run([("DEL", key) for key in page])


def exact(number: int) -> float:
    """A float of these bits, to test every bit."""
    value: float = struct.unpack("<d", struct.pack("<Q", number))[0]
    return value


def some_of_everything(ends_at_ms: int) -> list[Command]:
    """Every kind with and without a deadline; empty and binary values; numbers prone to rounding."""
    every_byte = bytes(range(256))
    commands: list[Command] = [
        ("SET", "string", "value"),
        ("SET", "empty", ""),
        ("SET", "counter", 2**63 - 1),
        ("SET", b"\x00\xff{}\r\n*", every_byte),
        ("HSET", "hash", "field", "value", "", "", every_byte, every_byte),
        ("SADD", "set", "a", "", every_byte),
        ("ZADD", "zset", "inf", "a", "-inf", "b", 0.1, "c", 1e300, "d", exact(1), "e", -0.0, "f", 2**53 + 2, ""),
        ("RPUSH", "list", "b", "a", "b", "", every_byte),
        ("XADD", "stream", "1526919030474-55", "a", "1", "a", "2", "", every_byte),
        ("XADD", "stream", "1526919030474-56", "b", "1"),
        ("XADD", "stream", "18446744073709551615-18446744073709551614", "c", "1"),
        ("XADD", "emptied stream", "5-1", "a", "1"),
        ("XDEL", "emptied stream", "5-1"),
    ]
    for number, kind in enumerate(("string", "hash", "set", "zset", "list", "stream")):
        name = f"{kind} with a deadline"
        made = next(command for command in commands if command[1] == kind)
        commands += [(made[0], name, *made[2:]), ("PEXPIREAT", name, ends_at_ms + number)]
    return commands
