"""What widely used frameworks write to Redis, as raw commands: their own key names, values and lifetimes."""

from __future__ import annotations

import json
import pickle
import random
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final

from keystead.stores import Command

_COUNT: Final = 40
_DAY_S: Final = 86_400
_ALNUM: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def _hex(draw: random.Random, digits: int) -> str:
    return f"{draw.getrandbits(4 * digits):0{digits}x}"


def _alnum(draw: random.Random, length: int) -> str:
    return "".join(draw.choice(_ALNUM) for _ in range(length))


def celery(draw: random.Random) -> Iterator[Command]:
    """Broker and result backend: queues, bindings, messages in work, results for a day."""
    for at in range(_COUNT):
        task = _uuid(draw)
        done = draw.random() < 0.8
        result: dict[str, Any] = {
            "status": "SUCCESS" if done else "FAILURE",
            "result": at * 3 if done else {"exc_type": "ValueError", "exc_message": ["no"], "exc_module": "builtins"},
            "traceback": None if done else "Traceback (most recent call last): …",
            "children": [],
            "date_done": f"2026-02-03T04:05:{at:02}.123456+00:00",
            "task_id": task,
        }
        yield ("SET", f"celery-task-meta-{task}", json.dumps(result), "EX", _DAY_S)
        message: dict[str, Any] = {
            "body": b64encode(b"[[], {}, {}]").decode(), "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": "shop.mail", "id": task, "retries": 0, "eta": None, "root_id": task},
            "properties": {"correlation_id": task, "reply_to": _uuid(draw), "delivery_tag": _uuid(draw), "priority": 0},
        }  # fmt: skip
        if at % 2:
            yield ("LPUSH", "celery", json.dumps(message))
        else:
            tag = message["properties"]["delivery_tag"]
            yield ("HSET", "unacked", tag, json.dumps([message, "", "celery"]))
            yield ("ZADD", "unacked_index", 1_770_000_000 + at, tag)
    separator = "\x06\x16"
    yield ("SADD", "_kombu.binding.celery", f"celery{separator}{separator}celery")
    yield ("SADD", "_kombu.binding.celeryev", f"worker.#{separator}{separator}celeryev.{_uuid(draw)}")
    yield ("SADD", "_kombu.binding.celery.pidbox", f"{separator}{separator}celery@web-1.celery.pidbox")


def sidekiq(draw: random.Random) -> Iterator[Command]:
    """Rails with Sidekiq: queues, scheduled jobs, processes, statistics by day; and the Rails cache."""
    for at in range(_COUNT):
        job = {
            "retry": True, "queue": ("default", "mailers")[at % 2], "class": "WelcomeJob", "args": [at],
            "jid": _hex(draw, 24), "created_at": 1_770_000_000.25 + at, "enqueued_at": 1_770_000_000.5 + at,
        }  # fmt: skip
        yield ("LPUSH", f"queue:{job['queue']}", json.dumps(job))
        yield ("ZADD", ("schedule", "retry", "dead")[at % 3], 1_770_000_000 + at, json.dumps(job))
        day = f"2026-{at // 28 + 1:02}-{at % 28 + 1:02}"
        yield ("SET", f"stat:processed:{day}", at * 7, "EX", 5 * 365 * _DAY_S)
        yield ("SET", f"stat:failed:{day}", at, "EX", 5 * 365 * _DAY_S)
        yield ("SET", f"cache:views/products/{at + 1}-20260203040506", b"\x04\x08o:" + draw.randbytes(20), "EX", 3_600)
    yield ("SADD", "queues", "default", "mailers")
    yield ("SET", "stat:processed", 4_000)
    yield ("SET", "stat:failed", 12)
    for at in range(3):
        process = f"web-{at}:{at + 10}:{_hex(draw, 12)}"
        info = {"hostname": f"web-{at}", "pid": at + 10, "concurrency": 5, "queues": ["default", "mailers"]}
        yield ("HSET", process, "info", json.dumps(info), "busy", at, "beat", f"1770000000.{at}", "quiet", "false")
        yield ("PEXPIRE", process, 60_000)
        yield ("HSET", f"{process}:work", "2n1s", json.dumps({"queue": "default", "payload": "{}", "run_at": 1}))
        yield ("PEXPIRE", f"{process}:work", 60_000)
        yield ("SADD", "processes", process)


def express_session(draw: random.Random) -> Iterator[Command]:
    """connect-redis: `sess:` and the session id of express-session, for a day."""
    for at in range(_COUNT):
        cookie = {
            "originalMaxAge": _DAY_S * 1000, "expires": f"2026-02-03T04:05:{at:02}.000Z", "httpOnly": True, "path": "/"
        }  # fmt: skip
        data: dict[str, Any] = {"cookie": cookie}
        if at % 3:
            data |= {"passport": {"user": _hex(draw, 24)}}
        if at % 4 == 0:
            data |= {"flash": {"error": ["Invalid password"]}}
        sid = urlsafe_b64encode(draw.randbytes(24)).decode()
        yield ("SET", f"sess:{sid}", json.dumps(data), "EX", _DAY_S - at)


def django_redis(draw: random.Random) -> Iterator[Command]:
    """The cache of Django: pickled values with a version, sessions in the cache, and cached pages."""
    for at in range(_COUNT):
        yield ("SET", f":1:product:{at + 1}", pickle.dumps({"id": at, "name": f"Product {at}"}), "EX", 300)
        yield ("SET", f":1:basket_count_{at + 1}", at, "EX", 300)
        session = f"django.contrib.sessions.cache{_alnum(draw, 32).lower()}"
        yield ("SET", f":1:{session}", pickle.dumps({"_auth_user_id": str(at)}), "EX", 1_209_600)
        page = f"views.decorators.cache.cache_page..GET.{_hex(draw, 32)}.{_hex(draw, 32)}.en-us.UTC"
        yield ("SET", f":1:{page}", pickle.dumps(["<html>", at]), "EX", 600)


def rate_limiter(draw: random.Random) -> Iterator[Command]:
    """rate-limiter-flexible by address, Flask-Limiter by path, and the sliding window of @upstash/ratelimit."""
    for at in range(_COUNT):
        address = f"10.0.{at}.{draw.randrange(256)}"
        yield ("SET", f"rlflx:{address}", at + 1, "PX", 60_000 - at)
        yield ("SET", f"LIMITS:LIMITER/{address}/login/5/1/minute", at % 5, "PX", 60_000 - at)
        yield ("SET", f"@upstash/ratelimit:{address}:{29_500_000 + at}", at + 1, "PX", 121_000 - at)


def socket_io(draw: random.Random) -> Iterator[Command]:
    """The adapter on Redis streams: one stream of packets, and sessions of clients that may reconnect."""
    for at in range(_COUNT):
        packet = {"uid": _hex(draw, 16), "nsp": "/", "type": "3", "data": json.dumps({"packet": at})}
        yield ("XADD", "socket.io", "*", *(text for pair in packet.items() for text in pair))
        session = b"\x82\xa3sid\xb4" + draw.randbytes(40)  # MessagePack
        yield ("SET", f"sio:session:{urlsafe_b64encode(draw.randbytes(15)).decode()}", session, "PX", 120_000)


def next_auth(draw: random.Random) -> Iterator[Command]:
    """The adapter of NextAuth for Upstash Redis: users, accounts, sessions and their indexes; nothing expires."""
    for at in range(_COUNT):
        user, email, account = _uuid(draw), f"person{at}@example.com", f"github:{1_000 + at}"
        about = {"name": f"Person {at}", "email": email, "image": None, "emailVerified": None, "id": user}
        yield ("SET", f"user:{user}", json.dumps(about))
        yield ("SET", f"user:email:{email}", user)
        linked = {"provider": "github", "type": "oauth", "providerAccountId": str(1_000 + at), "userId": user}
        yield (
            "SET",
            f"user:account:{account}",
            json.dumps({**linked, "access_token": _alnum(draw, 40), "id": account}),
        )
        yield ("SET", f"user:account:by-user-id:{user}", account)
        token = _uuid(draw)
        session = {"sessionToken": token, "userId": user, "expires": f"2026-03-03T04:05:{at:02}.000Z", "id": token}
        yield ("SET", f"user:session:{token}", json.dumps(session))
        yield ("SET", f"user:session:by-user-id:{user}", token)


def bullmq(draw: random.Random) -> Iterator[Command]:
    """A queue of BullMQ: jobs by number, lists and sets of their states, and its events."""
    for at in range(1, _COUNT + 1):
        yield (
            "HSET", f"bull:mails:{at}", "name", "welcome", "data", json.dumps({"to": f"user{at}@example.com"}),
            "opts", json.dumps({"attempts": 3}), "timestamp", 1_770_000_000_000 + at, "delay", 0, "priority", 0,
        )  # fmt: skip
        if at % 2:
            yield ("LPUSH", "bull:mails:wait", at)
        else:
            yield ("ZADD", "bull:mails:completed", 1_770_000_000_000 + at, at)
            yield ("XADD", "bull:mails:events", "*", "event", "completed", "jobId", at, "returnvalue", "null")
    yield ("SET", "bull:mails:id", _COUNT)
    yield ("HSET", "bull:mails:meta", "opts.maxLenEvents", 10_000, "version", "bullmq:5.1.0")


FRAMEWORKS: Final[dict[str, Callable[[random.Random], Iterator[Command]]]] = {
    "Celery": celery,
    "Sidekiq": sidekiq,
    "express-session": express_session,
    "django-redis": django_redis,
    "rate limiters": rate_limiter,
    "Socket.IO": socket_io,
    "NextAuth": next_auth,
    "BullMQ": bullmq,
}
