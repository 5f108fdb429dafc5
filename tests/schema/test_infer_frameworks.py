"""Drafts of stores that Celery, Sidekiq, Django, Express and others filled."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any, NamedTuple

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import DraftFamily, Inferred, infer
from tests.schema.drafted_keyspace import keyspace_of
from tests.schema.framework_stores import FRAMEWORKS


class Row(NamedTuple):
    """What a newcomer reads of a family: `sure Value sess:{sess_id:token}`, its lifetime, and where it leads to."""

    text: str
    lifetime: str = "never"
    leads_to: tuple[str, ...] = ()


DRAFTS: dict[str, dict[str, Row]] = {
    "Celery": {
        "kombu_binding_celery": Row("guess Set _kombu.binding.celery"),
        "kombu_binding_celery_pidbox": Row("guess Set _kombu.binding.celery.pidbox"),
        "kombu_binding_celeryev": Row("guess Set _kombu.binding.celeryev"),
        "celery": Row("guess List celery"),
        "celery_task_meta": Row("sure Value celery-task-meta-{meta_id:uuid}", "1 day"),
        "unacked": Row("guess Hash unacked"),
        "unacked_index": Row("guess SortedSet unacked_index"),
    },
    "Sidekiq": {
        "cache_views_products": Row(
            "likely Value cache:views/products/{product_id:int}-{product_id2:int}", "1 hour"
        ),
        "dead": Row("guess SortedSet dead"),
        "processes": Row("guess Set processes"),
        "queue_default": Row("guess List queue:default"),
        "queue_mailers": Row("guess List queue:mailers"),
        "queues": Row("guess Set queues"),
        "retry": Row("guess SortedSet retry"),
        "schedule": Row("guess SortedSet schedule"),
        "stat_failed": Row("guess Counter stat:failed"),
        "stat_failed_by_date": Row("sure Counter stat:failed:{date:date}", "1825 days"),
        "stat_processed": Row("guess Counter stat:processed"),
        "stat_processed_by_date": Row("sure Counter stat:processed:{date:date}", "1825 days"),
        "web": Row("likely Hash web-{web_id:int}:{web_id2:int}:{web_id3:hex}", "1 minute"),
        "web_work": Row("likely Hash web-{web_id:int}:{web_id2:int}:{web_id3:hex}:work", "1 minute"),
    },
    "express-session": {"sess": Row("sure Value sess:{sess_id:token}", "1 day")},
    "django-redis": {
        "basket_count": Row("sure Counter :1:basket_count_{count_id:int}", "5 minutes"),
        "django_contrib_sessions_cache": Row(
            "likely Value :1:django.contrib.sessions.cache{cache_id:alnum}", "14 days"
        ),
        "product": Row("likely Value :1:product:{product_id:int}", "5 minutes"),
        "views_decorators_cache_cache_page_get_en": Row(
            "likely Value :1:views.decorators.cache.cache_page..GET.{get_id:hex}.{get_id2:hex}.en-us.UTC", "10 minutes"
        ),
    },
    "rate limiters": {
        "limits_limiter_login_minute": Row(
            "sure Counter LIMITS:LIMITER/{ip:ip}/login/{login_id:int}/{login_id2:int}/minute", "1 minute"
        ),
        "rlflx": Row("sure Counter rlflx:{ip:ip}", "1 minute"),
        "upstash_ratelimit": Row("sure Counter @upstash/ratelimit:{ip:ip}:{ratelimit_id:int}", "2 minutes"),
    },
    "Socket.IO": {"sio_session": Row("likely Value sio:session:{session_id:token}", "2 minutes")},
    "NextAuth": {
        "user": Row("sure Value user:{user_id:uuid}", leads_to=("user_email",)),
        "user_account_by_user_id": Row("sure Value user:account:by-user-id:{user_id:uuid}"),
        "user_account_github": Row("sure Value user:account:github:{github_id:int}", leads_to=("user",)),
        "user_email": Row("likely Value user:email:{email}", leads_to=("user",)),
        "user_session": Row("sure Value user:session:{session_id:uuid}", leads_to=("user",)),
        "user_session_by_user_id": Row(
            "sure Value user:session:by-user-id:{user_id:uuid}", leads_to=("user_session",)
        ),
    },
    "BullMQ": {
        "bull_mails": Row("sure Hash bull:mails:{mail_id:int}"),
        "bull_mails_completed": Row("guess SortedSet bull:mails:completed"),
        "bull_mails_id": Row("guess Counter bull:mails:id"),
        "bull_mails_meta": Row("guess Hash bull:mails:meta"),
        "bull_mails_wait": Row("guess List bull:mails:wait"),
    },
}  # fmt: skip
# Streams with other fields than those of a Log cannot be families.
STREAMS = {
    "Socket.IO": "not drafted: 1 stream like socket.io",
    "BullMQ": "not drafted: 1 stream like bull:mails:events",
}


def drafted(*names: str) -> Inferred:
    """The draft of a store that these frameworks filled. It is sound, and the doctor finds nothing."""

    async def look() -> Inferred:
        async with connect("memory://") as store:
            for name in names:
                await store.run(list(FRAMEWORKS[name](random.Random(1))))
            found = await infer(store)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            report = await examine([keyspace(store)])
            assert report.counts.keys() <= {"unknown-key"}
            unknown = [one["count"] for one in report.unknown.as_json()]
            assert unknown == [1] * len(STREAMS.keys() & set(names))
            return found

    return asyncio.run(look())


def row_of(family: DraftFamily) -> Row:
    said = "" if family.lifetime is None else family.lifetime.describe()
    leads_to: tuple[Any, ...] = tuple(one.link.target for one in family.relations if one.kind == "leads_to")
    lifetime = "never" if said.startswith("never") else said
    return Row(f"{family.confidence} {family.kind} {family.pattern}", lifetime, leads_to)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_store_of_a_framework_is_drafted_as_its_documents_describe_it(name: str) -> None:
    found = drafted(name)
    assert {one.name: row_of(one) for one in found.draft.families} == DRAFTS[name]
    assert any(STREAMS.get(name, "") in note for note in found.draft.notes)


def test_all_frameworks_in_one_store_stay_apart() -> None:
    found = drafted(*FRAMEWORKS)
    expected = {row.text.partition(" ")[2] for rows in DRAFTS.values() for row in rows.values()}
    assert {row_of(one).text.partition(" ")[2] for one in found.draft.families} == expected


def test_the_evidence_is_a_count_masked_examples_and_how_sure() -> None:
    families = {one.name: one for one in drafted(*FRAMEWORKS).draft.families}
    count, examples = families["celery_task_meta"].evidence
    assert count == "40 keys, 40 read; fixed, or not used in between; the longest TTL was 23 hours 59 minutes"
    assert re.fullmatch(r"such as celery-task-meta-..…\(36\)(?:, celery-task-meta-..…\(36\)){2}", examples)
    dates = families["stat_failed_by_date"].evidence[1]
    assert re.fullmatch(r"such as stat:failed:2026-\d\d-\d\d(?:, stat:failed:2026-\d\d-\d\d){2}", dates)
    assert families["user_email"].evidence[1:] == ("such as user:email:pe…(19), user:email:pe…(20)",)
    assert families["celery"].evidence == ("1 key, 1 read; no deadline",)
    assert "its members are whole keys of web" in families["processes"].evidence
