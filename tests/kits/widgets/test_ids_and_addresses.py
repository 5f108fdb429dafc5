"""Page URLs, the ids derived from them, and the validation of both."""

import re
from hashlib import sha256
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import BatchItem, Owner, Widgets, checks
from keystead.kits.widgets.service.checks import candidate_ids
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    Reason,
    found_by_doctor,
    owner,
    refused,
    service_of,
    service_on,
    used,
)

pytestmark = pytest.mark.usefixtures("quick_hash")

LONGEST = "https://example.com/" + "x" * (2048 - len("https://example.com/"))


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://example.com", "example"),
        ("https://www.example.com/page?a=b#c", "example"),
        ("https://WWW.Example.COM/", "example"),
        ("https://blog.example.com/", "blog"),
        ("https://www.www.example.com/", "www"),
        ("https://localhost:8443/", "localhost"),
        ("https://example.com:444/", "example"),
        ("https://192.0.2.1/", "192"),
        ("https://[2001:db8::1]/", "2001db81"),
        ("https://[::1]:8443/", "1"),
        ("https://bücher.example/", "bcher"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva"),
        ("https://日本.example/", "page"),
        ("https://---.example/", "page"),
        ("https://-a-.example/", "a"),
        ("https://a_b.example/", "ab"),
        ("https://" + "a" * 300 + ".example/", "a" * 63),
    ],
)
async def test_an_id_is_the_first_label_of_the_host_and_eight_digits_of_the_address(
    memory: Store, url: str, label: str
) -> None:
    widgets = service_on(memory)
    expected = f"{label}-{sha256(url.encode()).hexdigest()[:8]}"
    for name in SERVICES:  # the same for each of the four
        assert (await service_of(widgets, name).create(url, TOKEN, visitor=ME)).id == expected
    assert await found_by_doctor(memory) == []
    for name in SERVICES:
        await service_of(widgets, name).delete(owner(url), visitor=ME)
    assert await Kept(memory).keys() == set()


@both
async def test_pages_with_colliding_digests_get_different_ids(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Alike:
        """A digest whose first eight digits are the same for all."""

        def __init__(self, data: bytes) -> None:
            self._data = data

        def hexdigest(self) -> str:
            return "a1b2c3d4" + sha256(self._data).hexdigest()[8:]

    class Hashes:
        sha256 = Alike

    monkeypatch.setattr(checks, "hashlib", Hashes)
    widgets = service_on(store)
    pages = [f"https://example.com/{one}" for one in range(5)]
    ids = [(await widgets.counters.create(page, TOKEN, visitor=ME)).id for page in pages]
    assert ids[0] == "example-a1b2c3d4"
    assert len(set(ids)) == 5
    for number, id in enumerate(ids):
        await used(widgets, "counter", id, number)
    assert [(await widgets.counters.get(id)).total for id in ids] == [0, 1, 2, 3, 4]
    # The widget with the first candidate id is deleted: the others keep their ids, and it gets its old one again.
    await widgets.counters.delete(owner(pages[0]), visitor=ME)
    again = [(await widgets.counters.create(page, TOKEN, visitor=ME)).id for page in reversed(pages)]
    assert again == ids[::-1]
    assert [(await widgets.counters.get(id)).total for id in ids] == [0, 1, 2, 3, 4]
    assert await found_by_doctor(store) == []


async def test_derived_ids_are_short_enough_for_a_key() -> None:
    for url in (LONGEST, "https://" + "a" * 2000 + ".example/"):
        ids = candidate_ids(url)
        assert len(ids) == len(set(ids)) == 8
        assert all(len(id) <= 128 for id in ids)


@pytest.mark.parametrize("id", ["a", "A_b-9", "index", "x" * 128, "-", "_", "total", "0"])
async def test_an_id_can_be_chosen(memory: Store, id: str) -> None:
    widgets = service_on(memory)
    for name in SERVICES:
        assert (await service_of(widgets, name).create(URL, TOKEN, visitor=ME, id=id)).id == id
        await used(widgets, name, id, 2)
    assert await found_by_doctor(memory) == []
    for name in SERVICES:
        await service_of(widgets, name).delete(Owner(TOKEN, id=id), visitor=ME)
    assert await Kept(memory).keys() == set()


@pytest.mark.parametrize(
    "id", ["", "x" * 129, "a:b", "a b", "a{b}", "a*", "é", "a\n", "a/b", "\u0661", None, 5, ["a"], b"a"]
)
async def test_an_invalid_id_is_refused_everywhere(memory: Store, id: Any) -> None:
    widgets = service_on(memory)
    for name in SERVICES:
        service = service_of(widgets, name)
        if id is not None:
            with Reason() as reason:
                await service.create(URL, TOKEN, visitor=ME, id=id)
            assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "id"})
            assert await refused(service.delete(Owner(TOKEN, id=id), visitor=ME)) == "VALIDATION_ERROR"
        assert await refused(service.get(id)) == "VALIDATION_ERROR"
        assert await refused(used(widgets, name, id)) == "VALIDATION_ERROR"
    assert await Kept(memory).keys() == set()


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "http://example.com", "HTTPS://example.com", "ftp://example.com", "//example.com"),
        *("https://", "https:///page", "https:example.com", "https://?a", "javascript:alert(1)"),
        *("https://a b.example", "https://example.com/a b", "https://example.com/\n", "https://example.com/\t"),
        *("https://example.com/\x00", "https://example.com/\u202e", "https://example.com/\ud800", " https://a.example"),
        *("https://user@example.com", "https://user:pass@example.com", "https://@example.com", "https://:@a.example"),
        *("https://example.com:0/", "https://example.com:99999/", "https://example.com:x/", "https://[::1/"),
        *("https://example.com\\@evil.example", LONGEST + "x", None, 5, ["https://example.com"], b"https://a.example"),
    ],
)
async def test_an_invalid_page_url_is_refused(memory: Store, url: Any) -> None:
    widgets = service_on(memory)
    for name in SERVICES:
        with Reason() as reason:
            await service_of(widgets, name).create(url, TOKEN, visitor=ME)
        assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "url"})
    assert await Kept(memory).keys() == set()


@both
async def test_urls_of_any_length_have_distinct_keys(store: Store, widgets: Widgets, kept: Kept) -> None:
    """Above 400 bytes in the key it is hashed; two that differ at their very end are two pages."""
    long = "https://example.com/" + "x" * 500
    pages = [LONGEST, LONGEST[:-1] + "y", long, long + "/", "https://example.com/" + "語" * 600]
    ids = [(await widgets.boards.create(page, TOKEN, visitor=ME)).id for page in pages]
    assert len(set(ids)) == len(pages)
    for page, id in zip(pages, ids, strict=True):
        assert (await widgets.boards.create(page, TOKEN, visitor=ME)).id == id
        assert (await widgets.boards.get(id)).url == page
        assert await refused(widgets.boards.clear(owner(page, OTHER_TOKEN), visitor=ME)) == "UNAUTHORIZED"
    assert max(len(key.encode()) for key in await kept.keys()) <= 512
    assert await found_by_doctor(store) == []
    for page in pages:
        await widgets.boards.delete(owner(page), visitor=ME)
    assert await kept.keys() == set()


@both
async def test_two_spellings_are_two_pages(widgets: Widgets) -> None:
    pages = [
        *("https://example.com", "https://example.com/", "https://EXAMPLE.com/", "https://example.com/?"),
        *("https://example.com/%61", "https://example.com/a", "https://example.com/#x", "https://example.com:443/"),
    ]
    ids = [(await widgets.counters.create(page, f"token-{at:03}", visitor=ME)).id for at, page in enumerate(pages)]
    assert len(set(ids)) == len(pages)
    for at, page in enumerate(pages):
        assert (await widgets.counters.set(owner(page, f"token-{at:03}"), at, visitor=ME)).total == at


async def test_an_owner_names_the_widget_by_url_or_id(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    assert (await widgets.likes.set(Owner(TOKEN, id=id), 3, visitor=ME)).total == 3
    for neither in (Owner(TOKEN), Owner(TOKEN, url=URL, id=id)):
        assert await refused(widgets.likes.set(neither, 4, visitor=ME)) == "VALIDATION_ERROR"
    assert await refused(widgets.likes.set(Owner(TOKEN, id="unknown"), 4, visitor=ME)) == "NOT_FOUND"
    assert await refused(widgets.likes.set(owner(f"{URL}/2"), 4, visitor=ME)) == "NOT_FOUND"
    assert (await widgets.likes.get(id)).total == 3


async def test_an_unknown_widget_is_not_found_and_nothing_is_stored(memory: Store) -> None:
    widgets = service_on(memory)
    for name in SERVICES:
        assert await refused(service_of(widgets, name).get("unknown")) == "NOT_FOUND"
        assert await refused(used(widgets, name, "unknown")) == "NOT_FOUND"
    assert await Kept(memory).keys() == set()


@both
async def test_a_derived_id_of_another_page_is_refused(widgets: Widgets, kept: Kept) -> None:
    """Otherwise an attacker who derives the id could create it first, and the page would show their widget."""
    for name in SERVICES:
        service = service_of(widgets, name)
        for taken in (*candidate_ids(URL), "some-00000000", "a-b-c0ffee00"):
            with Reason() as reason:
                await service.create("https://mallory.example/", TOKEN, visitor=ME, id=taken)
            assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "id"})
            if name in ("counter", "like"):
                items = [BatchItem("mine", "https://mallory.example/"), BatchItem(taken, "https://mallory.example/2")]
                assert await refused(service.batch_create(TOKEN, items[1:], visitor=ME)) == "VALIDATION_ERROR"
        assert await kept.keys() == set()
    for name in SERVICES:  # it is its own: with the id or without
        service = service_of(widgets, name)
        assert (await service.create(URL, TOKEN, visitor=ME, id=candidate_ids(URL)[0])).id == candidate_ids(URL)[0]
        assert (await service.create(URL, TOKEN, visitor=ME)).id == candidate_ids(URL)[0]
        await service.delete(owner(), visitor=ME)


async def test_an_existing_derived_id_of_another_page_stays(memory: Store) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    await widgets.counters.create("https://other.example/", TOKEN, visitor=ME, id="mine")
    for key in ("counter:mine", "counter:mine:owner", "counter:mine:total"):
        held = (await kept.held(key)).replace(b'"mine"', b'"example-3641c5f2"')
        await kept.ask("SET", key.replace("mine", "example-3641c5f2"), held)
    await kept.ask("SET", "url:counter:https%3A%2F%2Fother.example%2F", "example-3641c5f2")
    again = await widgets.counters.create("https://other.example/", TOKEN, visitor=ME, id="example-3641c5f2")
    assert again.id == "example-3641c5f2"
    made = await widgets.counters.create(URL, TOKEN, visitor=ME)
    assert made.id == candidate_ids(URL)[1]


async def test_a_page_gets_a_random_id_if_all_derived_ids_are_taken(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    widgets = service_on(memory)
    monkeypatch.setattr("keystead.kits.widgets.service.services.is_derived_id", lambda id: False)  # as it once was
    for number, taken in enumerate(candidate_ids(URL)):
        await widgets.counters.create(f"https://other.example/{number}", TOKEN, visitor=ME, id=taken)
    made = await widgets.counters.create(URL, TOKEN, visitor=ME)
    assert re.fullmatch(r"example-[0-9a-f]{8}", made.id)
    assert (await widgets.counters.create(URL, TOKEN, visitor=ME)).id == made.id
