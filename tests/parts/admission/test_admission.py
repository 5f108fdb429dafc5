"""Admission: the round trips of a token check, and that revoked tokens are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import BadDeclaration
from keystead.parts.admission import Admission, Admitted
from keystead.parts.cache import LoadFailed
from keystead.parts.jwt import Denied, UncheckedToken
from keystead.schema.check import check
from tests.parts.admission.conftest import ANN, App, AppKeys, People, User, everywhere, here
from tests.parts.jwt.test_revoked import Down
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order
from tests.servers import Server
from tests.stores.redis.proxy import Proxy


def watched(stores: dict[str, Store]) -> tuple[dict[str, Store], list[Relay]]:
    relays = {role: Relay(one) for role, one in stores.items()}
    return dict(relays), list(relays.values())


@everywhere
async def test_a_valid_token_is_admitted_with_claims_and_user(stores: dict[str, Store]) -> None:
    app = App(stores)
    token = app.token()
    for _ in range(2):
        who = await app.admission.admitted(token)
        assert isinstance(who, Admitted)
        assert (who.sub, who.claims["plan"], who.user) == ("42", "Pro", ANN)
    assert app.people.asked == 1


@everywhere
async def test_the_token_and_its_user_are_one_round_trip_to_each_store(stores: dict[str, Store]) -> None:
    seen, relays = watched(stores)
    app = App(seen)
    token = app.token()
    await app.admission.admitted(token)
    for relay in relays:
        relay.log.clear()
    assert await app.admission.admitted(token)
    assert [len(relay.log) for relay in relays] == [1] * len(relays)
    commands = sorted(str(command[0]) for relay in relays for command in relay.log[0] if isinstance(command, tuple))
    assert commands[-2:] == ["HGETALL", "PTTL"]
    assert sum(len(relay.log[0]) for relay in relays) == 4  # the token, its user's revocation, the user, the TTL


class Counting(Proxy):
    """Counts how often something was sent to a real server."""

    sent = 0

    def _passing_requests(self, data: bytes) -> bytes | None:
        self.sent += 1
        return super()._passing_requests(data)


async def test_on_the_wire_to_a_real_redis_it_is_one_round_trip(redis_server: Server) -> None:
    redis_server.ask("FLUSHALL")
    async with Counting(redis_server.port) as proxy, connect(proxy.url) as store:
        app = App({"default": store})
        token = app.token()
        await app.admission.admitted(token)
        for _ in range(3):
            proxy.sent = 0
            assert await app.admission.admitted(token)
            assert proxy.sent == 1
        await app.tokens.revoke(app.access(token))
        proxy.sent = 0
        assert await app.admission.admitted(token) == Denied("revoked")
        assert proxy.sent == 1
        proxy.sent = 0
        assert await app.admission.admitted("made up") == Denied("malformed")
        assert proxy.sent == 0


@everywhere
async def test_nothing_is_loaded_or_touched_for_a_token_that_was_revoked(stores: dict[str, Store]) -> None:
    app = App(stores)
    kept, ended = app.token(), app.token()
    await app.tokens.revoke(app.access(ended))
    assert await app.admission.admitted(ended) == Denied("revoked")
    assert app.people.asked == 0
    await app.admission.admitted(kept)
    user = app.keys.user(42)
    await user.bound.store.run([("PEXPIRE", user.key, 60_000)])  # a touch is due
    assert await app.admission.admitted(ended) == Denied("revoked")
    left = await user.remaining()
    assert left is not None
    assert left.total_seconds() <= 60
    assert await app.admission.admitted(kept)
    left = await user.remaining()
    assert left is not None
    assert left.total_seconds() > 1700


@everywhere
async def test_a_deleted_user_is_denied(stores: dict[str, Store]) -> None:
    app = App(stores)
    token = app.token()
    assert await app.admission.admitted(token)
    del app.people.rows["42"]
    await app.users.invalidate(app.keys.user(42))
    assert await app.admission.admitted(token) == Denied("user")
    assert await app.admission.admitted(token) == Denied("user")
    assert app.people.asked == 2  # the negative result is cached
    assert await app.admission.admitted(app.token("nobody's number")) == Denied("claims")


@everywhere
async def test_a_changed_user_is_seen_by_the_next_request_of_any_process(
    stores: dict[str, Store],
) -> None:
    people = People()
    one, other = App(stores, people), App(stores, people)
    token = one.token()
    assert await one.admission.admitted(token)
    people.rows["42"] = User(name="Ann", role="PM")
    assert await other.users.change(other.keys.user(42), {"role": "PM"}) is True
    who = await one.admission.admitted(token)
    assert isinstance(who, Admitted)
    assert who.user.role == "PM"
    people.rows["42"] = User(name="Anna", role="PM")
    await other.users.invalidate(other.keys.user(42))
    who = await one.admission.admitted(token)
    assert isinstance(who, Admitted)
    assert who.user.name == "Anna"


@everywhere
async def test_in_every_order_requests_after_a_logout_are_refused(
    stores: dict[str, Store],
) -> None:
    """Also if the request misses the cache, and loads and writes while the logout invalidates."""

    async def once(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        gated = {role: Gated(one) for role, one in stores.items()}
        gate = gated["default"]
        for one in gated.values():  # one order for all stores
            one.waiting, one.under_way, one.moved = gate.waiting, gate.under_way, gate.moved
        people = People()
        asking, ending = App(dict(gated), people), App(dict(gated), people)
        token = asking.token()
        own = App(stores, people)
        await own.users.invalidate(own.keys.user(42))

        async def log_out() -> None:
            await ending.tokens.revoke(ending.access(token))
            await ending.users.invalidate(ending.keys.user(42))

        order, results = await in_order(gate, {"a": lambda: asking.admission.admitted(token), "b": log_out}, first)
        assert results["a"] == Denied("revoked") or isinstance(results["a"], Admitted)
        assert await own.admission.admitted(token) == Denied("revoked")
        return order

    assert await every_order(once, switches=2) >= 3


# --- store outages -------------------------------------------------------------------------------------------------


@here
async def test_an_outage_of_the_denylist_denies_all_tokens(store: Store) -> None:
    app = App({"default": store, "durable": Down(store)})
    assert await app.admission.admitted(app.token()) == Denied("unavailable")
    assert app.people.asked == 0


@here
async def test_when_down_allow_loads_the_user_without_the_store(store: Store) -> None:
    told: list[UncheckedToken] = []

    async def tell(event: UncheckedToken) -> None:
        told.append(event)

    app = App({"default": Down(store)}, when_down="allow", tell=tell)
    who = await app.admission.admitted(app.token())
    assert isinstance(who, Admitted)
    assert who.user == ANN
    assert [event.sub for event in told] == ["42"]


@here
async def test_a_cache_outage_loads_the_user(store: Store) -> None:
    async with connect("memory://") as durable:
        app = App({"default": Down(store), "durable": durable})
        token = app.token()
        who = await app.admission.admitted(token)
        assert isinstance(who, Admitted)
        assert who.user == ANN
        await app.tokens.revoke(app.access(token))
        assert await app.admission.admitted(token) == Denied("revoked")
        assert app.people.asked == 1


@here
async def test_an_outage_is_not_an_unknown_user(store: Store) -> None:
    app = App({"default": store})
    app.people.error = OSError("the database is away")
    with pytest.raises(LoadFailed):
        await app.admission.admitted(app.token())


@here
async def test_an_entry_that_cannot_be_read_is_loaded_again(store: Store) -> None:
    app = App({"default": store})
    for command in (("HSET", "session:user:42", "name", "x"), ("SADD", "session:user:42", "x")):
        await store.run([("DEL", "session:user:42"), command])
        who = await app.admission.admitted(app.token())
        assert isinstance(who, Admitted)
        assert who.user == ANN


def test_check_finds_nothing_wrong_with_its_families() -> None:
    assert check([AppKeys]) == check([AppKeys], cluster=True) == []


# --- declarations --------------------------------------------------------------------------------------------------


@here
async def test_without_users_the_token_alone_decides(store: Store) -> None:
    app = App({"default": store})
    admission = Admission(app.tokens)
    token = app.token()
    assert await admission.admitted(token) == Admitted(app.access(token), None)
    await app.tokens.revoke(app.access(token))
    assert await admission.admitted(token) == Denied("revoked")


@here
async def test_users_need_a_key_and_a_loader(store: Store) -> None:
    app = App({"default": store})
    half: Any = {"key": lambda access: app.keys.user(1)}
    with pytest.raises(BadDeclaration, match="all three, or none"):
        Admission(app.tokens, app.users, **half)
    with pytest.raises(BadDeclaration, match="all three, or none"):
        Admission(app.tokens, **half)


@here
async def test_a_hundred_requests_of_one_user_load_the_user_once(store: Store) -> None:
    people = People()
    apps = [App({"default": store}, people) for _ in range(4)]
    token = apps[0].token()
    found = await asyncio.gather(*(apps[n % 4].admission.admitted(token) for n in range(100)))
    assert all(isinstance(who, Admitted) and who.user == ANN for who in found)
    assert people.asked == 1
