"""Real requests to Django: cached views, limits and outages: `python -m pytest tests/integrations/django_requests.py`.

It runs in a process of its own, because Django has one configuration for a process; see `test_django.py`.
"""

from __future__ import annotations

import ast
import asyncio
import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={"default": {"BACKEND": "keystead.integrations.django.KeysteadCache", "LOCATION": "memory://"}},
    INSTALLED_APPS=["django.contrib.messages", "keystead.integrations.django", "tests.integrations.django_app"],
    KEYSTEAD={"STORE": "memory://"},
    LANGUAGES=[("en", "English"), ("de", "German")],
    LANGUAGE_CODE="en",
    MESSAGE_STORAGE="django.contrib.messages.storage.cookie.CookieStorage",
    MIDDLEWARE=[
        "keystead.integrations.django.StoreOutageMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    SESSION_ENGINE="keystead.integrations.django.sessions",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    (
                        "django.template.loaders.locmem.Loader",
                        {"page.html": "{{ n }}{% for one in messages %}{{ one }}{% endfor %}"},
                    )
                ],
                "context_processors": ["django.contrib.messages.context_processors.messages"],
            },
        }
    ],
    USE_TZ=True,
)

import django  # noqa: E402

django.setup()

from django.contrib import messages  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.core.checks import run_checks  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.template.response import TemplateResponse  # noqa: E402
from django.test import AsyncClient, Client, override_settings  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils import timezone, translation  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.utils.module_loading import import_string  # noqa: E402
from django.views import View  # noqa: E402

from keystead import Counter, Keyspace, Set, Steps, Value, after, connect, procedure  # noqa: E402
from keystead.errors import BadArgument, BadDeclaration, KeysteadError, StoreUnavailable  # noqa: E402
from keystead.integrations import loop_stores  # noqa: E402
from keystead.integrations.django import bind, cached_view, rate_limit  # noqa: E402
from keystead.integrations.django.app_settings import unknown_setting, wrong_value  # noqa: E402
from keystead.integrations.django.session_store import SessionStore  # noqa: E402
from keystead.integrations.django.sessions import list_sessions  # noqa: E402
from tests.integrations.django_app import keys as app_keys  # noqa: E402
from tests.integrations.django_app.keys import ShopKeys  # noqa: E402
from tests.parts.sessions.relays import Relay  # noqa: E402

urlpatterns: list[Any] = []


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> Iterator[None]:
    """An empty store for each test, and no URLs."""
    urlpatterns.clear()
    with override_settings(KEYSTEAD={"STORE": f"sqlite:///{tmp_path}/shop.db"}):
        django.urls.clear_url_caches()
        yield


def serve(address: str, view: Callable[..., Any]) -> None:
    urlpatterns.append(path(address, view))
    django.urls.clear_url_caches()


def counted(make: Callable[[HttpRequest, int], Any], **options: Any) -> list[int]:
    """A cached view at `/page`, and how often it has run."""
    calls: list[int] = []

    def view(request: HttpRequest) -> Any:
        calls.append(1)
        return make(request, len(calls))

    serve("page", cached_view(ShopKeys.page, **options)(view))
    return calls


def get(client: Client | None = None, **headers: str) -> str:
    return str((client or Client()).get("/page", headers=headers).content.decode())


# --- cached views ------------------------------------------------------------------------------------------------


def test_a_page_is_cached_for_everybody_who_asks_the_same() -> None:
    calls = counted(lambda request, n: HttpResponse(f"page {n}", headers={"X-Shop": "1"}))
    assert [get(), get()] == ["page 1", "page 1"]
    found = Client().get("/page")
    assert (found.headers["X-Shop"], found.headers["Content-Type"]) == ("1", "text/html; charset=utf-8")
    assert Client().head("/page").status_code == 200
    assert len(calls) == 2, "only GET is cached"


def test_a_request_with_authorization_neither_fills_nor_reads_the_cache() -> None:
    counted(lambda request, n: HttpResponse(f"{n} for {request.headers.get('Authorization')}"))
    assert get(authorization="Bearer ann") == "1 for Bearer ann"
    assert [get(), get()] == ["2 for None", "2 for None"]
    assert get(authorization="Bearer bob") == "3 for Bearer bob"
    by_server = Client(REMOTE_USER="ann")
    assert get(by_server) == "4 for None"


def test_hosts_schemes_languages_and_time_zones_have_pages_of_their_own() -> None:
    def page(request: HttpRequest, n: int) -> HttpResponse:
        return HttpResponse(f"{request.build_absolute_uri()} {translation.get_language()} {n}")

    counted(page)
    assert get(host="a.test") == "http://a.test/page en 1"
    assert get(host="b.test") == "http://b.test/page en 2"
    assert Client().get("/page", secure=True, headers={"host": "a.test"}).content.decode() == "https://a.test/page en 3"
    assert get(host="a.test", accept_language="de") == "http://a.test/page de 4"
    with timezone.override("Asia/Tokyo"):
        assert get(host="a.test") == "http://a.test/page en 5"
    assert get(host="a.test") == "http://a.test/page en 1"


@pytest.mark.parametrize("name", ["Accept", "Accept, X-Tenant", "*", "Cookie"])
def test_a_page_that_varies_by_a_header_outside_the_key_is_not_stored(name: str) -> None:
    calls = counted(lambda request, n: HttpResponse("page", headers={"Vary": name}), vary=["X-Tenant"])
    get(), get()
    assert len(calls) == 2


def test_a_page_that_varies_by_a_header_of_the_key_is_stored_for_each_value() -> None:
    def page(request: HttpRequest, n: int) -> HttpResponse:
        return HttpResponse(f"{request.headers.get('X-Tenant')} {n}", headers={"Vary": "X-Tenant"})

    counted(page, vary=["X-Tenant"])
    assert [get(x_tenant="a"), get(x_tenant="b|"), get(x_tenant="a")] == ["a 1", "b| 2", "a 1"]
    with pytest.raises(BadDeclaration, match="not for everybody"):
        cached_view(ShopKeys.page, vary=["Cookie"])
    with pytest.raises(BadDeclaration, match="a list"):
        cached_view(ShopKeys.page, vary="Accept")


def test_pages_of_one_visitor_are_not_stored() -> None:
    def page(request: HttpRequest, n: int) -> HttpResponse:
        match n:
            case 1:
                return HttpResponse(f"hello {request.session.get('name')}")
            case 2:
                messages.info(request, "saved")
            case 3:
                return HttpResponse("mine", headers={"Cache-Control": "max-age=60, Private"})
            case 4:
                response = HttpResponse("page")
                response.set_cookie("seen", "1")
                return response
        return HttpResponse(f"page {n}", status=404 if n == 5 else 200)

    calls = counted(page)
    for _ in range(8):
        get()
    assert len(calls) == 6


def test_a_template_response_is_rendered_once_and_not_stored_with_messages() -> None:
    counted(lambda request, n: TemplateResponse(request, "page.html", {"n": n}))
    with_message = Client()
    serve("save", lambda request: (messages.info(request, "saved"), HttpResponse())[1])
    with_message.get("/save")
    assert get(with_message) == "1saved"
    assert [get(), get()] == ["2", "2"]


def test_concurrent_misses_run_a_view_once_and_a_failing_view_fails_alone() -> None:
    release = threading.Event()

    def page(request: HttpRequest, n: int) -> HttpResponse:
        release.wait(60)
        return HttpResponse(f"page {n}")

    calls = counted(page)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(get) for _ in range(8)]
        release.set()
        assert {one.result() for one in found} == {"page 1"}
    assert len(calls) == 1

    def fail(request: HttpRequest) -> HttpResponse:
        raise LookupError("the view fails")

    serve("fails", cached_view(ShopKeys.page)(fail))
    for _ in range(2):
        with pytest.raises(LookupError, match="the view fails"):
            Client().get("/fails")


# --- asynchronous views --------------------------------------------------------------------------------------------


def test_asynchronous_views_are_cached_and_limited_too_as_functions_and_as_classes() -> None:
    calls: list[str] = []

    class Products(View):  # type: ignore[misc]  # Django has no types
        async def get(self, request: HttpRequest) -> HttpResponse:
            calls.append("products")
            return TemplateResponse(request, "page.html", {"n": len(calls)})

    @method_decorator(rate_limit(ShopKeys.searches), name="dispatch")
    class Search(View):  # type: ignore[misc]
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("found")

    async def fails(request: HttpRequest) -> HttpResponse:
        raise LookupError("the view fails")

    serve("products", cached_view(ShopKeys.page)(Products.as_view()))
    serve("search", Search.as_view())
    serve("as-view", rate_limit(ShopKeys.searches)(Search.as_view()))
    serve("fails", cached_view(ShopKeys.page)(fails))

    async def requests() -> None:
        client = AsyncClient()
        pages = [(await client.get("/products")).content for _ in range(3)]
        assert pages == [b"1"] * 3
        assert [(await client.get("/search")).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert (await client.get("/as-view")).status_code == 429
        for _ in range(2):
            with pytest.raises(LookupError, match="the view fails"):
                await client.get("/fails")

    asyncio.run(requests())
    assert calls == ["products"]
    assert Client().get("/products").content == b"1", "under WSGI the page of the other loop is found"


# --- outages -------------------------------------------------------------------------------------------------------


class Away(Relay):
    """A store that does not answer, or answers nonsense."""

    error: KeysteadError = StoreUnavailable("the store does not answer")

    async def before(self) -> None:
        raise self.error


def test_a_store_outage_in_a_view_or_while_saving_is_a_503_and_a_defect_is_a_500() -> None:
    store = Away(connect("memory://"))
    loop_stores._synchronous["memory://away"] = loop_stores.SharedStore(store)

    def write(request: HttpRequest) -> HttpResponse:
        request.session["cart"] = 1  # a new session: the store is asked when it is saved
        return HttpResponse("put")

    serve("read", lambda request: HttpResponse(request.session.get("cart")))
    serve("write", write)
    serve("limited", rate_limit(ShopKeys.searches)(lambda request: HttpResponse()))
    serve("page", cached_view(ShopKeys.page)(lambda request: HttpResponse("page")))
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = f"{'a' * 43}.{'b' * 43}.dmlzaXRvcg"
    with override_settings(KEYSTEAD={"STORE": "memory://away"}):
        for address in ("read", "write", "limited"):
            answer = (Client(raise_request_exception=False) if address == "write" else client).get(f"/{address}")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), address
            assert answer.cookies == {}
        assert get() == "page", "a cache outage does not stop a page"
        store.error = BadArgument("a defect")
        assert client.get("/read").status_code == 500


def seconds_left(session: SessionStore) -> float:
    session.save()
    assert session._found is not None
    return session._found.ends_at_ms / 1000 - time.time()


def test_sessions_of_visitors_may_end_earlier_than_those_of_users() -> None:
    with override_settings(KEYSTEAD={**settings.KEYSTEAD, "ANONYMOUS_SESSION_AGE": "1h"}):
        visitor, user = SessionStore(), SessionStore()
        visitor["cart"] = user["cart"] = 1
        user["_auth_user_id"] = "7"
        left, longer = seconds_left(visitor), seconds_left(user)
    assert 3500 < left <= 3600
    assert 13 * 86_400 < longer <= 14 * 86_400


# --- checks of the settings ----------------------------------------------------------------------------------------


def found(**given: Any) -> list[tuple[str, str]]:
    """The identifiers and texts of what Django's system check finds with these settings."""
    with override_settings(**given):
        return [(str(one.id).removeprefix("keystead."), str(one.msg)) for one in run_checks()]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ([], "must be a dict, not list"),
        ({"STOER": "memory://"}, "did you mean 'STORE'?"),
        ({"STORE": 5}, "KEYSTEAD['STORE'] must be a URL as text, not int"),
        ({"SESSION_PREFIX": ["a"]}, "KEYSTEAD['SESSION_PREFIX'] must be text"),
        ({"SESSION_PREFIX": "a{b"}, "a{b"),
        ({"SESSIONS_PER_USER": "5"}, "KEYSTEAD['SESSIONS_PER_USER'] must be a number of at least 1"),
        ({"SESSIONS_PER_USER": 0}, "KEYSTEAD['SESSIONS_PER_USER'] must be a number of at least 1"),
        ({"SESSION_MAX_AGE": 400}, "KEYSTEAD['SESSION_MAX_AGE'] must be a duration such as '400d'"),
        ({"SESSION_MAX_AGE": "400 moons"}, "400 moons"),
        ({"ANONYMOUS_SESSION_AGE": 5}, "KEYSTEAD['ANONYMOUS_SESSION_AGE'] must be a duration such as '400d'"),
    ],
)
def test_a_wrong_setting_is_an_error_of_the_system_check(setting: Any, words: str) -> None:
    [(id, text)] = found(KEYSTEAD=setting)
    assert id == "E001"
    assert words in text


def test_a_wrong_store_or_cache_is_an_error_of_the_system_check() -> None:
    fine = {"BACKEND": "keystead.integrations.django.KeysteadCache", "LOCATION": "sqlite:///c.db"}
    assert [id for id, _ in found(KEYSTEAD={})] == ["E002", "W005"]
    assert [id for id, _ in found(KEYSTEAD={"STORE": "redis//typo"})] == ["E002", "W005"]
    for wrong in ({"LOCATION": "redis//typo"}, {"LOCATION": ["redis://a"]}, {"LOCATION": None}, {"OPTIONS": {"X": 1}}):
        assert [id for id, _ in found(CACHES={"default": {**fine, **wrong}})] == ["E003"], wrong
    assert found(CACHES={"default": fine}) == []


def test_a_store_in_memory_a_weak_declaration_and_a_serializer_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    class WeakKeys(Keyspace):
        """Its lists grow forever."""

        names = Set("names:{user}", str, lifetime=after("1d"))

    cached = {"default": {**settings.CACHES["default"], "LOCATION": "sqlite:///c.db"}}
    [(id, text)] = found(CACHES=cached, KEYSTEAD={"STORE": "memory://"})
    assert (id, "each event loop has data of its own" in text) == ("W005", True)
    [(id, text)] = found(CACHES=cached, SESSION_SERIALIZER="django.contrib.sessions.serializers.PickleSerializer")
    assert (id, "never as pickle" in text) == ("W006", True)
    monkeypatch.setattr(WeakKeys, "__module__", app_keys.__name__)
    monkeypatch.setattr(app_keys, "WeakKeys", WeakKeys, raising=False)
    weak = found(CACHES=cached)
    assert {id for id, _ in weak} == {"W004"}
    assert all("WeakKeys" in text for _, text in weak)


# --- commands ------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    """What `manage.py keystead` prints."""
    output = io.StringIO()
    call_command("keystead", *arguments, stdout=output)
    return output.getvalue()


def test_commands_look_for_each_key_in_its_own_store(tmp_path: Path) -> None:
    caches = {"default": {**settings.CACHES["default"], "LOCATION": f"sqlite:///{tmp_path}/cache.db"}}
    counted(lambda request, n: HttpResponse("page"))
    with override_settings(CACHES=caches):
        get()
        cache.set("greeting", "hello")
        assert "/page" in run("show", "page", "--json")
        assert "greeting" in run("show", "entry", "--json")
        both = run("show", "--json")
        assert "django:cache:v1:greeting" in both
        assert "shop:page:" in both
        assert run("check").count("no findings") == 2
        run("doctor")
        assert "shop:searches:{client}" in run("docs")
        with pytest.raises(CommandError, match="exit code 2"):
            run("show", "pages")
        with pytest.raises(CommandError, match="invalid choice"):
            run("chek")
        with override_settings(KEYSTEAD={}), pytest.raises(CommandError, match="set KEYSTEAD"):
            run("doctor")


# --- rate limits ---------------------------------------------------------------------------------------------------


def test_a_limit_takes_a_family_with_its_rate_or_a_limit_that_was_made_already() -> None:
    serve("search", rate_limit(ShopKeys.searches)(lambda request: HttpResponse()))
    answers = [Client().get("/search") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 60
    bound = bind(ShopKeys).searches
    serve("bound", rate_limit(bound, client=lambda request: "other")(lambda request: HttpResponse()))
    assert [Client().get("/bound").status_code for _ in range(4)] == [200, 200, 200, 429]


# --- the guide -----------------------------------------------------------------------------------------------------


class GuideKeys(Keyspace):
    """The keys that the last block of the guide uses."""

    stock = Counter("guide:stock:{sku}", lifetime=after("1d"))
    order = Value("guide:order:{id}", str, lifetime=after("1d"))

    @procedure
    def buy(self, sku: str, id: str, buyer: str) -> Steps[int]:
        left = self.stock(sku).increment(-1)
        return Steps(self.order(id).add(buyer).required(), left).giving(left)


def test_the_blocks_of_the_guide_run() -> None:
    text = (Path(__file__).parents[2] / "docs/django.md").read_text("utf-8")
    in_settings, sessions, views, keys = re.findall(r"```py\n(.*?)```", text, re.DOTALL)

    given: dict[str, Any] = {}
    exec(in_settings, given)
    assert (unknown_setting(given["KEYSTEAD"]), wrong_value(given["KEYSTEAD"])) == (None, None)
    assert import_module(given["SESSION_ENGINE"]).SessionStore is SessionStore
    for name in (given["CACHES"]["default"]["BACKEND"], given["MIDDLEWARE"][0]):
        assert callable(import_string(name))
    assert given["INSTALLED_APPS"][-1] in settings.INSTALLED_APPS

    request, user = HttpRequest(), "7"  # an id may be given instead of a model
    for _ in range(3):
        request.session = SessionStore()
        request.session["_auth_user_id"] = "7"
        request.session.save()
    request.user = user
    exec(sessions, {"request": request, "user": user, "id": list_sessions(user)[-1].id})
    assert list_sessions(user) == []

    made: dict[str, Any] = {"Keyspace": Keyspace, "after": after}
    exec(views, made)
    assert made["search"].__name__ == "search"
    assert made["products"].__name__ == "products"

    program = ast.parse(keys)
    last = ast.Module([program.body.pop()], [])
    names: dict[str, Any] = {"ShopKeys": GuideKeys, "order": "o-1", "user": "7"}
    exec(compile(program, "guide", "exec"), names)
    assert names["left"] == -1
    asyncio.run(eval(compile(last, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names))
    assert names["left"] == -1
