"""Keys as widely used frameworks lay them out: one family for each layout, and a clean doctor on the same store."""

from __future__ import annotations

import asyncio
import random
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import infer
from tests.schema.drafted_keyspace import keyspace_of

_KEYS = 50
_ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

_SPRING_INDEX = (
    "spring:session:index:org.springframework.session.FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME"
)

Layout = Callable[[random.Random, int], str]


def _uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def _hex(draw: random.Random, digits: int) -> str:
    return f"{draw.getrandbits(4 * digits):0{digits}x}"


def _token(draw: random.Random) -> str:
    return urlsafe_b64encode(draw.randbytes(32)).decode().rstrip("=")


def _alnum(draw: random.Random, length: int, letters: str = _ALNUM) -> str:
    return "".join(draw.choice(letters) for _ in range(length))


def _day(number: int) -> str:
    return f"2026-{number // 28 + 1:02}-{number % 28 + 1:02}"


def _address(draw: random.Random) -> str:
    return ".".join(str(draw.randrange(256)) for _ in range(4))


LAYOUTS: dict[str, tuple[str, Layout]] = {
    "Celery results": ("celery-task-meta-{meta_id:uuid}", lambda draw, _: f"celery-task-meta-{_uuid(draw)}"),
    "Celery replies": (
        "{id:uuid}.reply.celery.pidbox", lambda draw, _: f"{_uuid(draw)}.reply.celery.pidbox"),
    "a word and a UUID": ("prefix_{prefix_id:uuid}", lambda draw, _: f"prefix_{_uuid(draw)}"),
    "a UUID in a path": ("user/{user_id:uuid}/profile", lambda draw, _: f"user/{_uuid(draw)}/profile"),
    "names in a path": ("user/{user_id:alnum}/profile", lambda draw, _: f"user/{_alnum(draw, 6, 'abcdefgh')}/profile"),
    "Django cache": (":1:user_{user_id:int}", lambda draw, at: f":1:user_{at}"),
    "Django cache with a prefix": ("shop:{shop_id:int}:basket:{basket_id:int}", lambda draw, at: f"shop:1:basket:{at}"),
    "Django sessions in the cache": (
        ":1:django.contrib.sessions.cache{cache_id:alnum}",
        lambda draw, _: f":1:django.contrib.sessions.cache{_alnum(draw, 32, _ALNUM[:26] + _ALNUM[-10:])}"),
    "Django cached pages": (
        ":1:views.decorators.cache.cache_page..GET.{get_id:hex}.{get_id2:hex}.en-us.UTC",
        lambda draw, _: f":1:views.decorators.cache.cache_page..GET.{_hex(draw, 32)}.{_hex(draw, 32)}.en-us.UTC"),
    "Rack sessions": ("session:2::{session_id:hex}", lambda draw, _: f"session:2::{_hex(draw, 64)}"),
    "Rails fragments": (
        "views/posts/{post_id:slug}/{post_id2:hex}",
        lambda draw, at: f"views/posts/{at + 1}-20260201{at:012}/{_hex(draw, 32)}"),
    "a hash tag": ("{{user:{user_id:int}}}:cart", lambda draw, at: f"{{user:{at}}}:cart"),
    "an id as hash tag": ("{{{id:int}}}:cart", lambda draw, at: f"{{{at}}}:cart"),
    "days": ("day.{date:date}", lambda draw, at: f"day.{_day(at)}"),
    "BullMQ jobs": ("bull:mails:{mail_id:int}", lambda draw, at: f"bull:mails:{at}"),
    "BullMQ jobs in a cluster": ("{{bull}}:mails:{mail_id:int}", lambda draw, at: f"{{bull}}:mails:{at}"),
    "Express sessions": ("sess:{sess_id:token}", lambda draw, _: f"sess:{_token(draw)}"),
    "prefixed tokens": ("sess_{sess_id:token}", lambda draw, _: f"sess_{_token(draw)}"),
    "Stripe ids": ("stripe:cus_{cus_id:alnum}", lambda draw, _: f"stripe:cus_{_alnum(draw, 14)}"),
    "Flask-Session": ("session:{session_id:uuid}", lambda draw, _: f"session:{_uuid(draw)}"),
    "rate limits by address": (
        "rate_limit/{ip:ip}/{limit_id:int}", lambda draw, at: f"rate_limit/{_address(draw)}/{1_700_000_000 + at}"),
    "Flask-Limiter": (
        "LIMITS:LIMITER/{ip:ip}/login/{login_id:int}/{login_id2:int}/minute",
        lambda draw, _: f"LIMITS:LIMITER/{_address(draw)}/login/5/1/minute"),
    "Laravel sessions": (
        "laravel_database_laravel_cache_:{cache_id:alnum}",
        lambda draw, _: f"laravel_database_laravel_cache_:{_alnum(draw, 40)}"),
    "Sidekiq statistics": ("stat:processed:{date:date}", lambda draw, at: f"stat:processed:{_day(at)}"),
    "Sidekiq processes": (
        "web.{web_id:int}:{web_id2:int}:{web_id3:hex}", lambda draw, at: f"web.{at}:{at + 7}:{_hex(draw, 12)}"),
    "Spring sessions": (
        "spring:session:sessions:expires:{expire_id:uuid}",
        lambda draw, _: f"spring:session:sessions:expires:{_uuid(draw)}"),
    "Spring session index": (
        f"{_SPRING_INDEX}:{{email}}",
        lambda draw, at: f"{_SPRING_INDEX}:ada{at}@example.com"),
    "numbered names": ("user{user_id:int}", lambda draw, at: f"user{at}"),
    "names of users": (
        "cart:{cart_id:alnum}", lambda draw, at: f"cart:{draw.choice(['user', 'ann', 'bob', 'cem'])}{at}"),
    "e-mail addresses": ("reset-{email}", lambda draw, at: f"reset-{_alnum(draw, 5, 'abcdef')}@example.com"),
    "web tokens": (
        "revoked:{revoked_id}",
        lambda draw, _: f"revoked:eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{_token(draw)[:20]}.{_token(draw)}"),
    "base64": ("digest:{digest_id}", lambda draw, _: f"digest:{_alnum(draw, 20)}+/{_alnum(draw, 5)}a1B=="),
    "a digest before a word": ("{id:hex}_readOnce", lambda draw, _: f"{_hex(draw, 32)}_readOnce"),
    "a UUID before a number": ("part-{part_id:slug}", lambda draw, at: f"part-{_uuid(draw)}-{at}"),
}  # fmt: skip


def assert_drafted(commands: list[tuple[Any, ...]], patterns: list[str]) -> None:
    """The draft of a store with these keys has these patterns, passes `check`, and the doctor finds nothing."""

    async def look() -> None:
        async with connect("memory://") as store:
            await store.run(commands)
            found = await infer(store)
            keyspace = keyspace_of(found)
            drafted = {one.pattern.text for one in keyspace.families.values()}
            assert drafted == set(patterns), found.draft.notes
            assert check([keyspace]) == []
            report = await examine([keyspace(store)])
            assert (report.counts, report.unknown.as_json()) == ({}, [])

    asyncio.run(look())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_of_keys_is_one_family_with_its_literals(name: str) -> None:
    pattern, layout = LAYOUTS[name]
    draw = random.Random(23)
    assert_drafted([("SET", layout(draw, at), f"value {at}") for at in range(_KEYS)], [pattern])


def test_all_layouts_in_one_store_stay_apart() -> None:
    draw = random.Random(5)
    commands = [("SET", layout(draw, at), f"value {at}") for _, layout in LAYOUTS.values() for at in range(_KEYS)]
    assert_drafted(commands, [pattern for pattern, _ in LAYOUTS.values()])
