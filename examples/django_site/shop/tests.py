"""Real requests against the shop, and what its sessions promise. Run them with `python manage.py test`."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.core.cache import cache
from django.test import AsyncClient, Client, TestCase, override_settings

from keystead import wait
from keystead.errors import BadValue
from keystead.integrations.django import bind
from keystead.integrations.django.sessions import end_sessions, list_sessions
from shop.keys import ShopKeys

SessionStore = import_module(settings.SESSION_ENGINE).SessionStore


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"])  # fast
class ShopTests(TestCase):
    def setUp(self) -> None:
        self.user = User.objects.create_user("ann", password="secret of ann")
        end_sessions(self.user)

    def sign_in(self) -> Client:
        client = Client()
        assert client.post("/accounts/login/", {"username": "ann", "password": "secret of ann"}).status_code == 302
        return client

    def test_signing_in_keeps_the_cart_and_replaces_the_session_key(self) -> None:
        self.client.post("/cart/apple")
        before = self.client.cookies["sessionid"].value
        self.client.post("/accounts/login/", {"username": "ann", "password": "secret of ann"})
        assert self.client.get("/cart").json() == {"apple": 1}
        assert self.client.cookies["sessionid"].value != before
        assert not SessionStore().exists(before)
        other = Client()
        other.cookies["sessionid"] = before
        assert other.get("/cart").json() == {}

    def test_a_save_in_flight_does_not_revive_a_session_that_was_signed_out(self) -> None:
        client = self.sign_in()
        in_flight = SessionStore(client.cookies["sessionid"].value)
        in_flight["pear"] = 1  # a request that has read the session, and has not saved yet
        client.post("/accounts/logout/")
        with self.assertRaises(UpdateError):
            in_flight.save()
        assert list_sessions(self.user) == []
        assert not SessionStore().exists(in_flight.session_key)

    def test_two_requests_that_change_different_keys_both_survive(self) -> None:
        self.client.post("/cart/apple")
        key = self.client.cookies["sessionid"].value
        first, second = SessionStore(key), SessionStore(key)
        first["apple"], second["pear"] = first["apple"] + 1, second.get("pear", 0) + 5
        first.save()
        second.save()
        assert self.client.get("/cart").json() == {"apple": 2, "pear": 5}

    def test_a_user_has_at_most_three_sessions_and_can_end_the_others(self) -> None:
        clients = [self.sign_in() for _ in range(4)]
        assert clients[0].get("/devices").status_code == 302  # evicted
        assert len(clients[3].get("/devices").json()["devices"]) == 3
        assert clients[3].post("/devices").json() == {"ended": 2}
        assert [client.get("/devices").status_code for client in clients] == [302, 302, 302, 200]

    def test_an_unknown_session_key_is_not_adopted(self) -> None:
        self.client.cookies["sessionid"] = "attackerchosenidattackerchosenid"
        self.client.post("/cart/apple")
        assert self.client.cookies["sessionid"].value != "attackerchosenidattackerchosenid"

    def test_the_last_one_is_sold_once(self) -> None:
        clients = [self.sign_in() for _ in range(2)]
        bind(ShopKeys).stock("apple").set(1).wait()
        assert sorted(client.post("/buy/apple").status_code for client in clients) == [200, 409]

    def test_an_eleventh_search_in_a_minute_is_refused(self) -> None:
        wait(bind(ShopKeys).searches("127.0.0.1").delete())
        answers = [self.client.get("/search?q=pear") for _ in range(11)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429]
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60

    def test_concurrent_misses_run_a_view_once(self) -> None:
        wait(bind(ShopKeys).page("http|en-us|UTC|testserver/?once").delete())
        from shop import views

        calls: list[int] = []
        products = views.PRODUCTS
        views.PRODUCTS = Counted(products, calls)
        try:
            with ThreadPoolExecutor(8) as pool:
                pages = list(pool.map(lambda _: Client().get("/?once").json(), range(8)))
        finally:
            views.PRODUCTS = products
        assert pages == [products] * 8
        assert len(calls) == 1

    async def test_an_asynchronous_view_reads_the_same_store(self) -> None:
        assert (await AsyncClient().get("/stock/plum")).json() == {"left": 0}
        await cache.aset("x", {"n": (1, 2)}, timeout=5)
        assert await cache.aget("x") == {"n": (1, 2)}

    def test_increments_are_atomic_and_keep_the_timeout(self) -> None:
        cache.set("count", 0, timeout=100)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: cache.incr("count"), range(80)))
        assert cache.get("count") == 80
        assert cache.touch("count", 0)
        assert cache.get("count") is None

    def test_a_model_is_refused_with_advice(self) -> None:
        with self.assertRaisesMessage(BadValue, "cache its primary key"):
            cache.set("user", self.user)


class Counted(dict):
    """A dict that counts how often a page is made of it."""

    def __init__(self, items: dict[str, str], calls: list[int]) -> None:
        super().__init__(items)
        self._calls = calls

    def items(self):
        self._calls.append(1)
        return super().items()
