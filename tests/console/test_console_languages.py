"""The console in Japanese and Korean: no page has a phrase in English, except what somebody wrote or a program said."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from keystead.catalogue import LANGUAGES, Language, Speaker
from keystead.console.console_requests import CATALOGUE
from keystead.console.console_wording import duration_words, lifetime_words
from keystead.schema import Keyspace, after, end_of_day, never, sliding, until
from keystead.schema.lifetime import Lifetime, in_words
from tests.console.console_browser import HttpBrowser, opened
from tests.console.shop_keys import ShopKeys, fill

_PHRASE = re.compile(r"(?!keystead )\b[A-Za-z]{3,},? [a-z]{2,}")
# What has no text, what is a name, and what is marked as English: the sentence of an error, of a cron expression.
_SKIPPED = ("code", "kbd", "script", "style", "option", "svg", "footer", "pre")
_VOID = ("meta", "link", "input", "br", "img", "hr")
_CART = "key=shop:cart:1"
_PAGES = (
    *("", "/findings", "/unknown", "/live", "/jobs", "/queues", "/sessions", "/audit", "/erase", "/task/examine"),
    *("/findings/repair?code=orphan", "/queues/drop_dead?topic=webhook&name=orders", "/jobs/run?name=console.measure"),
    *("/family/ShopKeys/cart", "/family/ShopKeys/visit", "/family/ShopKeys/orders?v.day=yesterday", "/nothing"),
    *("/family/ShopKeys/stock", f"/key/ShopKeys/cart?{_CART}", "/key/ShopKeys/carts?key=shop:carts&raw=1"),
    *(f"/key/ShopKeys/cart/{act}?{_CART}" for act in ("edit", "renew", "delete")),
    *("/key/ShopKeys/hits?key=shop:hits:10.0.0.1", "/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1"),
    "/audit?before=x",
)


class _Phrases(HTMLParser):
    """The texts of a page that a person reads in its language."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [text for name in ("aria-label", "title", "placeholder") if (text := given.get(name))]
        if tag not in _VOID:
            self._open.append(tag in _SKIPPED or (tag != "html" and given.get("lang") == "en"))

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self._open):
            self.found.append(data.strip())


def english_in(page: str, known: set[str]) -> list[str]:
    reader = _Phrases()
    reader.feed(page)
    for text in known:
        reader.found = [one.replace(text, "") for one in reader.found]
    return [one for one in reader.found if _PHRASE.search(one)]


def declared_texts(*keyspaces: type[Keyspace]) -> set[str]:
    """What the key documents say, which is not translated."""
    families = [family for one in keyspaces for family in one.families.values()]
    reasons = {getattr(family.lifetime, "reason", "") for family in families}
    return {family.doc for family in families} | reasons - {""}


@pytest.mark.parametrize("language", ["ja", "ko"])
async def test_no_page_has_a_phrase_in_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: Language
) -> None:
    async with opened(tmp_path, monkeypatch, ["tests.console.shop_keys:ShopKeys"]) as (app, access):
        keys = await fill(app.state.stores["default"], carts=3, orphans=2)
        await keys.draft.store.run([("PERSIST", "shop:cart:2"), ("SET", "shop:seen:1", "no set")])
        browser = HttpBrowser(app, access, keys, **{"accept-language": language})
        await browser.enter("admin")
        await browser.post("/console/findings/examine")
        await app.state.kits["console"].tasks.settle()
        known = declared_texts(ShopKeys, *ShopKeys.part_keyspaces) | {"how many products are in it"}
        known |= {"the receiver is down", "Customer 1", "all keys"}  # as errors, values and the log say
        wrong = {}
        for path in _PAGES:
            page = (await browser.get(f"/console{path}")).text
            assert f'<html lang="{language}"' in page, path
            wrong[path] = english_in(page, known)
        posts = {
            "/erase": {"subject": "somebody"},
            "/sessions": {"user": "3"},
            "/find": {"q": "nothing like it"},
            f"/key/ShopKeys/cart/edit?{_CART}": {"version": "of another time"},
            f"/key/ShopKeys/cart/delete?{_CART}": {"again": "another"},
        }
        for path, fields in posts.items():
            wrong[f"POST {path}"] = english_in((await browser.post(f"/console{path}", **fields)).text, known)
        assert {path: found for path, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "lifetime",
    [
        after("1h 30m"),
        after("1h", jitter="10%"),
        sliding("30d", touch_every="1m"),
        until("ends_at"),
        until("ends_at", at_most="2d"),
        end_of_day("Asia/Tokyo"),
        never("the truth"),
    ],
    ids=lambda one: str(one.describe()),
)
def test_a_lifetime_is_worded_as_in_the_key_document_and_in_every_language(lifetime: Lifetime) -> None:
    assert lifetime_words(lifetime, Speaker("en")) == lifetime.describe()
    for language in LANGUAGES[1:]:
        words = lifetime_words(lifetime, Speaker(language, CATALOGUE)).replace("the truth", "")
        assert not _PHRASE.search(words), words


def test_durations_have_a_singular_and_their_largest_units() -> None:
    say = Speaker("en")
    for ms in (1, 1000, 60_000, 3_600_000, 86_400_000, 90_061_001, 2 * 86_400_000):
        assert duration_words(ms, say) == in_words(ms)
    assert duration_words(90_061_001, say, most=2) == "1 day 1 hour"
    assert duration_words(90_061_001, Speaker("ja", CATALOGUE), most=2) == "1日 1時間"
