"""The audit log of the console: every act is in it, with who did what from where."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keystead.console.console_activity import ACTIVITY_ROUTES
from keystead.console.console_routes import _ROUTES
from tests.console.console_browser import HttpBrowser, opened
from tests.console.shop_keys import fill

_CART = "key=shop:cart:1"
_QUEUE = "topic=webhook&name=orders"


class Act(NamedTuple):
    """A post, and the entry that it leaves."""

    path: str
    fields: Mapping[str, str]
    event: str
    what: str | None


_ACTS = (
    Act(f"/key/ShopKeys/cart/edit?{_CART}", {"field.items": "5"}, "console-edited", "ShopKeys.cart shop:cart:1"),
    Act(f"/key/ShopKeys/cart/renew?{_CART}", {}, "console-renewed", "ShopKeys.cart shop:cart:1"),
    Act("/undo", {}, "console-undone", "ShopKeys.cart shop:cart:1"),
    Act(f"/key/ShopKeys/cart/delete?{_CART}", {"again": "shop:cart:1"}, "console-deleted", "ShopKeys.cart shop:cart:1"),
    Act(
        "/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1",
        {"again": "shop:hits:10.0.0.1"},
        "console-limit-reset",
        "ShopKeys.hits shop:hits:10.0.0.1",
    ),
    Act("/erase", {"subject": "shop:1", "again": "shop:1"}, "console-erased", "shop:1"),
    Act("/findings/examine", {}, "console-examined", "all keys"),
    Act("/findings/repair?code=orphan", {"again": "orphan"}, "console-repaired", "orphan"),
    Act(
        "/findings/repair?code=orphan&key=shop:draft:gone-0",
        {"again": "draft"},
        "console-repaired",
        "orphan shop:draft:gone-0",
    ),
    Act("/unknown/draft", {}, "console-drafted", "unknown keys"),
    Act("/unknown/draft", {"shape": "legacy:{int}:user"}, "console-drafted", "legacy:{int}:user"),
    Act("/jobs/run?name=console.measure", {"again": "console.measure"}, "console-job-run", "console.measure"),
    Act(f"/queues/retry?{_QUEUE}", {"again": "webhook/orders"}, "console-queue-retried", "webhook/orders"),
    Act(f"/queues/retry_dead?{_QUEUE}", {"again": "webhook/orders"}, "console-dead-letters-retried", "webhook/orders"),
    Act(f"/queues/drop_dead?{_QUEUE}", {"again": "webhook/orders"}, "console-dead-letters-dropped", "webhook/orders"),
    Act(f"/queues/drop_waiting?{_QUEUE}", {"again": "webhook/orders"}, "console-queue-dropped", "webhook/orders"),
    Act("/sessions", {"user": "3", "again": "3"}, "console-sessions-ended", "visit 3"),
    Act("/leave", {}, "signed-out", None),
)
_CHANGE_NOTHING = {"/console/measure", "/console/find"}


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch, ["tests.console.shop_keys:ShopKeys"]) as (app, access):
        keys = await fill(app.state.stores["default"], carts=3, orphans=2)
        yield HttpBrowser(app, access, keys)


async def prepared(shop: HttpBrowser, act: Act) -> dict[str, str]:
    """The fields of a post, once there is something to act on."""
    fields = dict(act.fields)
    if "repair" in act.path:
        await shop.post("/console/findings/examine")
        await shop.app.state.kits["console"].tasks.settle()
    elif "draft" in act.path:
        await shop.get("/console/unknown")  # which measures
    elif "edit" in act.path:
        page = (await shop.get(f"/console{act.path}")).text
        fields["version"] = re.findall(r'name="version" value="([^"]+)"', page)[0]
    elif "undo" in act.path:
        renewed = await shop.post(f"/console/key/ShopKeys/cart/renew?{_CART}")
        fields["undo"] = renewed.headers["location"].split("undo=")[1]
    return fields


@pytest.mark.parametrize("act", _ACTS, ids=lambda one: f"{one.event} {one.what}")
async def test_an_act_is_in_the_log_with_who_what_and_where(shop: HttpBrowser, act: Act) -> None:
    await shop.enter("admin", "operator:ann")
    fields = await prepared(shop, act)
    before = len(await shop.access.audit.latest(50))
    done = await shop.post(f"/console{act.path}", **fields)
    assert done.status_code in (200, 303), done.text
    await shop.app.state.kits["console"].tasks.settle()
    new = (await shop.access.audit.latest(50))[:-before]
    entry: Any = next(one for one in new if one.event == act.event)
    assert (entry.who, entry.where) == ("operator:ann", "127.0.0.1")
    if act.what is not None:
        assert entry.what == act.what
    await shop.enter("operator", "operator:eve")
    page = (await shop.get(f"/console/audit?event={act.event}&who=ann")).text
    assert act.event in page.partition("<tbody>")[2]


def test_every_post_of_the_console_is_an_act_of_this_list() -> None:
    posts = {route.split(" ")[1] for route, *_ in (*_ROUTES, *ACTIVITY_ROUTES) if route.startswith("POST")}
    acts = ["/console" + one.path.partition("?")[0] for one in _ACTS]
    missing = {
        path
        for path in posts - _CHANGE_NOTHING
        if not any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), one) for one in acts)
    }
    assert missing == set()
