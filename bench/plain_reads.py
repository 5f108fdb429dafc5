"""The reads of the doctor with plain redis-py: `python -m bench.plain_reads URL` prints the number of keys.

SCAN, then TYPE and PTTL of each key, then its whole value: two pipelines per page. Nothing is decoded or compared.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import redis

PAGE: Final = 500
READS: Final[dict[bytes, tuple[Any, ...]]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"list": ("LRANGE", 0, -1),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"stream": ("XRANGE", "-", "+"),
}


def read_all(url: str) -> int:
    client = redis.Redis.from_url(url)
    cursor, count = 0, 0
    while True:
        cursor, keys = client.scan(cursor, count=PAGE)
        looks = client.pipeline(transaction=False)
        for key in keys:
            looks.type(key)
            looks.pttl(key)
        kinds = looks.execute()[::2]
        values = client.pipeline(transaction=False)
        for key, kind in zip(keys, kinds, strict=True):
            name, *arguments = READS[kind]
            values.execute_command(name, key, *arguments)  # type: ignore[no-untyped-call]
        values.execute()
        count += len(keys)
        if cursor == 0:
            return count


if __name__ == "__main__":
    print(read_all(sys.argv[1]))
