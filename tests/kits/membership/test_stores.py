"""Which stores the kit accepts, and a separate store for its caches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from keystead import Store, connect
from keystead.errors import DoesNotFit, StoreUnavailable
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipSettings
from keystead.kits.membership.service import Patreon
from keystead.schema.store_fit import misfits
from keystead.stores import Guarantees
from tests import forking
from tests.kits.membership.conftest import BASE, RING, Books, FakePatreon, here, refusal, rows, signed_in, works
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Relay
from tests.serving import environment, free_port


class Cutting(Relay):
    """A store that can be disconnected."""

    is_away = False

    async def before(self) -> None:
        if self.is_away:
            raise StoreUnavailable("cut off")


@pytest.fixture
async def cache() -> AsyncIterator[Cutting]:
    async with connect("memory://") as opened:
        yield Cutting(opened)


@pytest.fixture
async def apart(
    store: Store, cache: Store, settings: MembershipSettings, clock: Clock, ledger: Books
) -> AsyncIterator[Members]:
    """The service with separate stores for sessions and caches."""
    site = Site(public_url=BASE, internal_url=BASE, development=True, now_ms=clock, render=lambda *_, **__: "")
    keys = MembershipKeys(store, cache=cache, seal=RING, now_ms=clock)
    async with httpx2.AsyncClient(trust_env=False) as http:
        made = Members(keys, settings, site, Patreon(settings.provider, http, clock, development=True), ledger)
        yield made
        await made.close()


@here
async def test_a_logout_clears_caches_in_a_separate_store(apart: Members, store: Store, cache: Store) -> None:
    token = await signed_in(apart)
    await apart.entitled(token)
    assert {key.partition(":")[0] for key in await rows(cache)} == {"membership", "auth"}
    await apart.logout(token)
    assert await rows(cache) == await rows(store) == set()


@here
async def test_a_cache_outage_asks_the_provider_and_signs_nobody_out(
    apart: Members, cache: Cutting, patreon: FakePatreon
) -> None:
    token = await signed_in(apart)
    before = patreon.questions
    cache.is_away = True
    assert await works(apart, token)
    assert patreon.questions == before + 1


@here
async def test_a_logout_during_a_cache_outage_is_final_and_can_be_completed(
    apart: Members, store: Store, cache: Cutting
) -> None:
    token = await signed_in(apart)
    await apart.entitled(token)
    cache.is_away = True
    with pytest.raises(StoreUnavailable):
        await apart.logout(token)
    cache.is_away = False
    assert not await works(apart, token)
    assert await refusal(apart.entitled(token)) == "SESSION_INVALID"
    assert await apart.logout(token) is False
    assert await rows(cache) == await rows(store) == set()


FORGETS = "a read may miss an acknowledged write, which only the role cache allows"
NO_STEP = "the store has no atomic steps, so add, replace and consume would not be safe"
UNDONE = (
    "without an atomic step that every read sees, a load that started before an entry was dropped could write it again"
    "; give the role another store, and write what this one serves into a keyspace of its own"
)
# Why a store with the guarantees of a serverless KV does not fit each family. Cache entries would fit, but neither
# sessions nor load markers do, so the caches do not fit either.
REASONS = {
    "session": [FORGETS, NO_STEP],
    "user_token": [FORGETS, NO_STEP],
    "membership": [],
    "membership_mark": [UNDONE, "it lives 5 seconds or more, but the shortest lifetime of the store is 1 minute"],
    "membership_stale": [],
    "renewing": [FORGETS, NO_STEP, "it lives 20 seconds, but the shortest lifetime of the store is 1 minute"],
    "refresh": [FORGETS, NO_STEP],
    "refresh_chain": [FORGETS, NO_STEP],
    "crash_report_limit": ["the store does not support Hash", FORGETS, NO_STEP],
    "rate_limit": [FORGETS, NO_STEP],
    "quota": [],
    "quota_mark": [UNDONE, "it lives 2 seconds or more, but the shortest lifetime of the store is 1 minute"],
    "auth": [],
    "auth_mark": [UNDONE, "it lives 2 seconds or more, but the shortest lifetime of the store is 1 minute"],
    "api_keys": ["the store does not support SortedSet", FORGETS, NO_STEP],
    "api_key": [
        FORGETS,
        NO_STEP,
        "it is listed in an index, but the store cannot write a record and its entry atomically",
    ],
}
SLOW = Guarantees(
    kinds=frozenset({"string"}), consistency="eventual", atomic="nothing", shortest_lifetime_ms=60_000
)  # and keys of 512 bytes, which `check` warns about


def test_an_eventually_consistent_store_is_refused_with_the_reason_for_each_family() -> None:
    assert {name: list(misfits(family, SLOW)) for name, family in MembershipKeys.families.items()} == REASONS


@here
async def test_an_eventually_consistent_store_is_refused_before_any_command(store: Store) -> None:
    store.guarantees = SLOW
    with pytest.raises(DoesNotFit) as caught:
        MembershipKeys(store, seal=RING)
    assert sentences(str(caught.value), store.url) == {name: why for name, why in REASONS.items() if why}


@here
async def test_an_eventually_consistent_store_is_refused_for_caches_too(store: Store) -> None:
    async with connect("memory://") as slow:
        slow.guarantees = SLOW
        with pytest.raises(DoesNotFit) as caught:
            MembershipKeys(store, cache=slow, seal=RING)
    marks = {name: why for name, why in REASONS.items() if name.endswith("_mark")}
    assert sentences(str(caught.value), "memory://") == marks


def sentences(said: str, url: str) -> dict[str, list[str]]:
    """The reasons in the error, by family."""
    found: dict[str, list[str]] = {}
    for line in said.splitlines():
        if " does not fit " in line:
            place, _, why = line.partition(f" does not fit {url}: ")
            found.setdefault(place.partition("MembershipKeys.")[2].partition(" ")[0], []).append(why)
    return found


CLOUDLIKE = """
from dataclasses import replace
from keystead import connect

def store(url):
    made = connect("memory://")
    made.url = url
    made.guarantees = replace(
        made.guarantees, kinds=frozenset({"string"}), consistency="eventual", atomic="nothing",
        shortest_lifetime_ms=60_000,
    )
    return made
"""


@pytest.fixture
def cloudlike(tmp_path: Path) -> Path:
    """A folder with a package that provides such a store."""
    (tmp_path / "cloudlike.py").write_text(CLOUDLIKE)
    told = tmp_path / "cloudlike-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudlike\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[keystead.stores]\ncloudlike = cloudlike:store\n")
    return tmp_path


@pytest.mark.parametrize("role", ["", "cache="])
def test_check_and_serve_report_the_reason_for_each_family(cloudlike: Path, role: str) -> None:
    expected = {name: why for name, why in REASONS.items() if why and (not role or name.endswith("_mark"))}
    url, env = "cloudlike://kv", environment({"PYTHONPATH": str(cloudlike)})
    stores = ("--store", "memory://", "--store", f"cache={url}") if role else ("--store", url)
    checked = forking.run(("check", "keystead.kits.membership.keys", *stores, "--json"), cloudlike, env)
    assert checked.returncode == 1, checked.stderr
    told = [one for one in json.loads(checked.stdout)["findings"] if one["code"] == "role-unfit"]
    own = {one["family"] for one in told if one["family"].startswith("MembershipKeys.")}  # without those of its parts
    assert own == {f"MembershipKeys.{name}" for name in expected}, told
    settings = {"KEYSTEAD_STORE": "memory://", "KEYSTEAD_STORES__CACHE": url} if role else {"KEYSTEAD_STORE": url}
    settings |= {"KEYSTEAD_KITS": "membership", "KEYSTEAD_PORT": str(free_port())}
    served = forking.run(("serve",), cloudlike, {**env, **settings})
    assert served.returncode != 0
    assert "Traceback" not in served.stderr
    assert sentences(served.stderr, url) == expected
