"""Keys, fields and members that are longer than an index takes."""

import pytest

from keystead import Store
from keystead.stores import required
from keystead.stores.database.hashed_names import LONGEST, name_of, rest_of, text_of

pytestmark = pytest.mark.anyio

# They differ at their ends only, and stand on both sides of the limit.
BEGINNING = b"a" * 990
TEXTS = sorted(
    [
        BEGINNING,
        *(BEGINNING + b"b" * n for n in (LONGEST - 990, LONGEST - 989, LONGEST - 988, 2_000)),
        *(BEGINNING + b"b" * 2_000 + end for end in (b"0", b"1", b"\x00", b"\xff")),
        b"a" * 20_000,
        b"a" * 20_000 + b"b",
    ]
)


def test_index_names_are_unique_and_reversible() -> None:
    names = {name_of(text) for text in TEXTS} | {name_of(text) for text in map(name_of, TEXTS)}
    assert len({name_of(text) for text in TEXTS}) == len(TEXTS)
    assert all(len(name) <= LONGEST + 1 for name in names)
    assert [text_of(name_of(text), rest_of(text)) for text in TEXTS] == TEXTS


async def test_members_of_one_score_are_in_the_order_of_their_bytes(store: Store) -> None:
    await store.run([("ZADD", "z", *(part for text in reversed(TEXTS) for part in (1, text))), ("ZADD", "z", 0, "x")])
    assert await store.run(
        [
            ("ZRANGE", "z", 0, -1),
            ("ZRANGE", "z", 0, 2, "REV"),
            ("ZRANGE", "z", 1, 1, "BYSCORE", "LIMIT", 3, 2),
            *(("ZRANK", "z", text) for text in TEXTS),
        ]
    ) == [[b"x", *TEXTS], TEXTS[:-4:-1], TEXTS[3:5], *range(1, len(TEXTS) + 1)]
    assert await store.run([("ZPOPMIN", "z"), ("ZPOPMIN", "z", 3), ("ZREM", "z", *TEXTS[3:]), ("EXISTS", "z")]) == [
        *([b"x", 0.0], [[text, 1.0] for text in TEXTS[:3]], len(TEXTS) - 3, 0)
    ]


async def test_keys_fields_and_members_are_found_and_deleted_by_their_whole_text(store: Store) -> None:
    await store.run([("SET", text, n) for n, text in enumerate(TEXTS)])
    await store.run([("HSET", "h", *(part for n, text in enumerate(TEXTS) for part in (text, n)))])
    await store.run([("SADD", "s", *TEXTS)])
    numbers = [b"%d" % n for n in range(len(TEXTS))]
    assert await store.run([("MGET", *TEXTS), ("HMGET", "h", *TEXTS), ("HGETALL", "h"), ("SMEMBERS", "s")]) == [
        *(numbers, numbers, dict(zip(TEXTS, numbers, strict=True)), set(TEXTS))
    ]
    stopped = await store.atomically([("DEL", TEXTS[5]), ("HDEL", "h", TEXTS[5]), required(("GET", "none"))])
    assert not stopped
    assert await store.run([("DEL", TEXTS[5]), ("HDEL", "h", TEXTS[6]), ("SREM", "s", TEXTS[7], TEXTS[8])]) == [1, 1, 2]
    assert await store.run([("EXISTS", *TEXTS), ("HLEN", "h"), ("SISMEMBER", "s", TEXTS[7])]) == [
        *(len(TEXTS) - 1, len(TEXTS) - 1, 0)
    ]
    found = [key async for page in store.scan(BEGINNING + b"*", page=2) for key in page]
    assert sorted(found) == [text for text in TEXTS if text != TEXTS[5]]
