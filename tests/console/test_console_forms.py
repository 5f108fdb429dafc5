"""Forms of the console: an input for each type of value, conflicts, and undo."""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from keystead.schema import KeyRing
from tests.console.console_browser import HttpBrowser, opened
from tests.console.form_keys import Address, Colour, FormKeys, Order, Profile, Size
from tests.console.shop_keys import SEAL_KEYS

EDIT = "/console/key/FormKeys/{}/edit?key={}"


@pytest.fixture
async def forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch, ["tests.console.form_keys:FormKeys"]) as (app, access):
        keys = FormKeys(app.state.stores["default"], seal=KeyRing.from_text(SEAL_KEYS))
        browser = HttpBrowser(app, access, keys)
        await browser.enter("operator")
        yield browser


async def fields_of(browser: HttpBrowser, path: str) -> dict[str, str]:
    """What a browser sends if nothing is edited."""
    page = (await browser.get(path)).text
    form = page.partition('id="edit-form"')[2].partition("</form>")[0]
    found: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", form):
        attributes = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if attributes.get("type") != "checkbox" or re.search(r"\schecked[\s>]", tag):
            found.setdefault(attributes["name"], attributes.get("value", ""))
    for name, text in re.findall(r'<textarea [^>]*?name="([^"]*)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL):
        found[name] = unescape(text)
    for name, options in re.findall(r'<select [^>]*?name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        selected = re.search(r"<option selected>([^<]*)", options)
        found[name] = unescape(selected[1]) if selected else ""
    return found


async def save(browser: HttpBrowser, path: str, **edited: str) -> Any:
    return await browser.post(path, **{**await fields_of(browser, path), **edited})


async def test_each_type_has_its_input_and_what_is_not_edited_remains(forms: HttpBrowser) -> None:
    keys, path = forms.keys, EDIT.format("order", "order:1")
    before = Order(paid=True, colour=Colour.BLUE, note="two\r\nlines", to=Address(city="Ulm", access_token="secret"))
    await keys.order("1").set(before)
    stored = await keys.order("1").see()
    page = (await forms.get(path)).text
    assert re.search(r'type="checkbox" id="field-1" name="field.paid" value="true" checked autofocus>', page)
    for name, kind in (("gift", "select"), ("colour", "select"), ("size", "select"), ("tags", "textarea")):
        assert re.search(f'<{kind} id="[^"]*" name="field.{name}"', page), name
    assert 'name="field.to/city"' in page
    assert "to → access_token" in page
    assert "secret" not in page
    assert (await save(forms, path)).status_code == 303
    assert await keys.order("1").see() == stored

    edited = {
        "field.paid": "false",
        "field.gift": "true",
        "field.colour": "red",
        "field.size": "2",
        "field.note": "",
        "none.note": "yes",
        "field.coupon": "TEN",
        "field.priority": "3",
        "field.to/city": "Bonn",
        "field.to/floor": "4",
        "field.bill": '{"city": "Graz", "floor": null, "access_token": ""}',
        "field.tags": '["new"]',
    }
    assert (await save(forms, path, **edited)).status_code == 303
    order = await keys.order("1").get()
    assert order == Order(
        gift=True,
        size=Size.LARGE,
        coupon="TEN",
        priority=3,
        to=Address(city="Bonn", floor=4, access_token="secret"),
        bill=Address(city="Graz"),
        tags=["new"],
    )
    assert (await save(forms, path, **{"field.gift": "", "field.coupon": "", "none.coupon": "yes"})).status_code == 303
    order = await keys.order("1").get()
    assert (order.gift, order.coupon, order.bill) == (None, None, Address(city="Graz"))
    assert (
        await save(forms, path, **{"field.bill/city": "Linz", "field.priority": "", "field.size": ""})
    ).status_code == 303
    order = await keys.order("1").get()
    assert (order.bill, order.priority, order.size) == (Address(city="Linz"), None, None)
    refused = await save(forms, path, **{"field.priority": "many"})
    assert (refused.status_code, "a number" in refused.text) == (422, True)


async def test_a_value_without_fields_is_a_checkbox_or_a_choice(forms: HttpBrowser) -> None:
    keys = forms.keys
    await keys.is_open("1").set(False)
    await keys.size("1").set(Size.SMALL)
    await keys.colour("1").set(Colour.RED)
    for family, entered, value in (
        ("is_open", "true", True),
        ("size", "2", Size.LARGE),
        ("colour", "blue", Colour.BLUE),
    ):
        key = keys.families[family].pattern.render({"id": "1"})
        assert (await save(forms, EDIT.format(family, key))).status_code == 303
        assert (await save(forms, EDIT.format(family, key), **{"field.whole": entered})).status_code == 303
        assert await getattr(keys, family)("1").get() == value


async def test_fields_of_a_hash_are_edited_beside_other_writers_and_undone(forms: HttpBrowser) -> None:
    keys, path = forms.keys, EDIT.format("profile", "profile:1")
    await keys.profile("1").set(Profile(name="Ann", home=Address(city="Ulm", access_token="secret"), pin="1234"))
    page = (await forms.get(path)).text
    assert "secret" not in page
    assert 'name="field.pin"' not in page
    opened_form = await fields_of(forms, path)
    unchanged = await keys.profile("1").see()
    assert (await forms.post(path, **opened_form)).headers["location"].endswith("key=profile%3A1")
    assert await keys.profile("1").see() == unchanged

    await keys.profile("1").update({"age": 30})  # by the application, after the form was opened
    edited = {"field.name": "Eve", "field.is_member": "true", "field.home/city": "Bonn", "field.colour": "blue"}
    saved = await forms.post(path, **{**opened_form, **edited})
    assert saved.status_code == 303
    home = Address(city="Bonn", access_token="secret")
    expected = Profile(name="Eve", age=30, is_member=True, colour=Colour.BLUE, home=home, pin="1234")
    assert await keys.profile("1").get() == expected
    assert (await forms.post(path, **{**opened_form, "field.name": "Mallory"})).status_code == 409
    assert (await forms.post(path, **{**opened_form, "field.pin": "0"})).status_code == 409
    assert await keys.profile("1").get() == expected

    undo = saved.headers["location"].split("undo=")[1]
    await keys.profile("1").update({"age": 31})
    assert "undone=yes" in (await forms.post("/console/undo", undo=undo)).headers["location"]
    assert (await keys.profile("1").see()) == {**unchanged, b"age": b"31"}
    undo = (await save(forms, path, **{"field.name": "Eve"})).headers["location"].split("undo=")[1]
    await keys.profile("1").update({"name": "Zoe"})
    assert "undone=no" in (await forms.post("/console/undo", undo=undo)).headers["location"]
    await keys.profile("1").delete()
    assert (await forms.post(path, **{**opened_form, "field.name": "Eve"})).status_code == 409
    assert not await keys.profile("1").exists()


async def test_fields_of_any_name_are_added_changed_and_removed(forms: HttpBrowser) -> None:
    keys, path = forms.keys, EDIT.format("stock", "stock:1")
    await keys.stock("1").set({"a/b": 1, "shelf": 2, "api_key": 7})
    edited = {"field.a~1b": "5", "gone.shelf": "yes", "new_name": "cellar", "field.new value": "9"}
    assert (await save(forms, path, **edited)).status_code == 303
    assert await keys.stock("1").get() == {"a/b": 5, "cellar": 9, "api_key": 7}
    again = await save(forms, path, **{"new_name": "cellar", "field.new value": "1"})
    assert (again.status_code, "already" in again.text) == (422, True)
    assert (await save(forms, path, **{"new_name": "attic", "field.new value": "x"})).status_code == 422
    assert await keys.stock("1").get() == {"a/b": 5, "cellar": 9, "api_key": 7}
    await keys.label("1").set({"name": "<b>"})
    assert (
        await save(forms, EDIT.format("label", "label:1"), **{"field.name": "7", "new_name": "x"})
    ).status_code == 303
    assert await keys.label("1").get() == {"name": "7", "x": ""}


async def test_of_two_writes_of_one_field_between_look_and_write_one_wins(forms: HttpBrowser) -> None:
    stock = forms.keys.stock("1")
    await stock.set({"shelf": 2})
    seen = await stock.see()
    assert await stock.update_seen(seen, {"shelf": 3})
    assert not await stock.update_seen(seen, {"shelf": 4})
    assert await stock.update_seen({b"cellar": None}, {"cellar": 1})
    assert not await stock.update_seen({b"cellar": None}, {"cellar": 2})
    await stock.delete()
    assert not await stock.update_seen({b"cellar": None}, {"cellar": 2})
    assert not await stock.exists()
