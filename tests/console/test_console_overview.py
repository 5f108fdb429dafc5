"""The overview of the console: charts, trends, stores that are down, slow calls, and what is new since yesterday."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keystead.console import console_charts as charts
from keystead.console.console_keys import ConsoleKeys, Examination
from keystead.schema import Counter, Keyspace, Value, after
from keystead.schema.times import moment, now_ms
from tests import servers
from tests.console.app_keys import AppKeys
from tests.console.console_browser import HttpBrowser, opened
from tests.console.shop_keys import fill


class SplitKeys(Keyspace):
    """Notes in one store, drawings in another."""

    note = Value("note:{id}", str, lifetime=after("1d"), doc="A note.")
    visits = Counter("visits:{id}", lifetime=after("1m"), doc="Visits in a minute.")
    drawing = Value("drawing:{id}", str, lifetime=after("1d"), role="cache", doc="A drawing.")


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch) as (app, access):
        yield HttpBrowser(app, access, AppKeys(app.state.stores["default"], needs_seal=False))


def points_in(svg: str) -> list[list[tuple[float, float]]]:
    """The places of every line and area, in order."""
    found = re.findall(r'points="([^"]*)"', svg)
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in one.split())] for one in found]


def test_a_line_goes_from_the_first_number_to_the_last_between_its_low_and_its_high() -> None:
    found = charts.line([5, 1, 9], 100, 20, 2)
    assert found is not None
    assert found.points == "2.0,10.0 50.0,18.0 98.0,2.0"
    assert (found.low, found.high, found.last_x, found.last_y) == (1, 9, 98.0, 2.0)
    assert found.area.endswith("98,20")
    flat = charts.line([3, 3], 100, 20)
    assert flat is not None
    assert {point.split(",")[1] for point in flat.points.split()} == {"10.0"}
    long = charts.line(range(1_000), 100, 20)
    assert long is not None
    assert len(long.points.split()) < 70
    assert (long.high, charts.line([1], 100, 20), charts.line([], 100, 20)) == (999, None, None)


def test_layers_lie_on_each_other_as_far_apart_as_their_moments_are_in_time() -> None:
    below, above = charts.layers([[2, 1, 6], [2, 3, 2]], [0, 30, 100], 200, 80)
    assert below.points == "0.0,60.0 60.0,70.0 200.0,20.0 200.0,80.0 60.0,80.0 0.0,80.0"
    assert above.points == "0.0,40.0 60.0,40.0 200.0,0.0 200.0,20.0 60.0,70.0 0.0,60.0"
    assert charts.layers([[1]], [0], 200, 80) == []
    assert charts.layers([], [], 200, 80) == []
    assert charts.layers([[1, 2]], [5, 5], 200, 80) == []
    [empty] = charts.layers([[0, 0]], [0, 1], 200, 80)
    assert {point.split(",")[1] for point in empty.points.split()} == {"80.0"}


def test_the_pieces_of_a_bar_fill_it_and_a_share_is_all_or_nothing_only_if_it_is() -> None:
    pieces = charts.stack([1, 0, 3], 100)
    assert [(one.at, one.width, one.step) for one in pieces] == [(0, 25, 0), (25, 75, 2)]
    assert charts.stack([0, 0], 100) == []
    shares = [charts.share(part, 1_000) for part in (0, 1, 500, 999, 1_000)]
    assert (shares, charts.share(0, 0)) == (["0", "1", "50", "99", "100"], "0")
    assert [charts.compact(one) for one in (0, 999, 1_200, 45_000, 3_400_000)] == ["0", "999", "1.2k", "45k", "3.4M"]
    assert [charts.size_text(one) for one in (12, 2_048, 3 << 20)] == ["12 B", "2.0 kB", "3.0 MB"]


async def test_two_measures_make_a_trend(app: HttpBrowser) -> None:
    await app.enter("operator")
    await app.keys.draft("1").set("x")
    assert "The trend begins with the second measure." in (await app.get("/console")).text
    for number in range(2, 5):
        await app.keys.draft(f"{number}").set("x")
    assert (await app.post("/console/measure")).status_code == 303
    page = (await app.get("/console")).text
    [row] = re.findall(r'<tr>\s*<th scope="row"><a [^>]*>AppKeys\.draft</a>.*?</tr>', page, re.DOTALL)
    assert ">4</span>" in row
    [area, line] = points_in(row.partition('class="spark"')[2])
    assert len(area) == len(line) + 2
    assert line[0][1] > line[-1][1]  # it rises
    chart = page.partition('class="areas"')[2].partition("</svg>")[0]
    [layer, *_] = points_in(chart)
    assert layer[0][1] > layer[1][1] == 0
    assert "100 % expire within a day" in row


async def test_a_store_that_is_down_is_shown_and_the_others_are_still_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers.redis() as redis:
        keyspaces = [f"{__name__}:SplitKeys"]
        async with opened(tmp_path, monkeypatch, keyspaces, stores={"cache": redis.url}) as (app, access):
            keys = SplitKeys(app.state.stores["default"], cache=app.state.stores["cache"])
            await keys.note("1").set("x")
            await keys.drawing("1").set("x")
            browser = HttpBrowser(app, access, keys)
            await browser.enter("operator")
            page = (await browser.get("/console")).text
            assert (page.count("is-up"), page.count("is-down")) == (2, 0)
            redis.kill()
            await browser.post("/console/measure")
            page = await browser.get("/console")
            stores = page.text.partition('aria-labelledby="stores"')[2]
            assert (page.status_code, stores.count("is-up"), stores.count("is-down")) == (200, 1, 1)
            assert (await browser.get("/console/family/SplitKeys/note")).status_code == 200
            down = await browser.get("/console/family/SplitKeys/drawing")
            assert (down.status_code, "The store does not answer." in down.text) == (503, True)
            assert 'id="families"' in down.text  # a page of the console, that leads elsewhere


async def test_nobody_gets_in_while_the_store_of_the_console_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers.redis() as redis:
        async with opened(tmp_path, monkeypatch, stores={"console": redis.url}) as (app, _):
            browser = HttpBrowser(app, app.state.kits["console"].access)
            await browser.enter("admin")
            redis.kill()
            page = await browser.get("/console/erase")
            assert (page.status_code, "The store does not answer." in page.text) == (503, True)
            assert 'id="families"' not in page.text


async def test_a_slow_procedure_is_shown_although_it_is_rare(app: HttpBrowser) -> None:
    await app.enter("viewer")
    metrics = app.app.state.metrics
    for number in range(12):
        for _ in range(50):
            metrics.count_call(f"AppKeys.busy{number}", "", "ok", 0.05)
    metrics.count_call("AppKeys.rare", "Rare.step", "ok", 2.0)
    page = (await app.get("/console")).text
    by_time, _, slowest = page.partition('id="calls"')[2].partition("</section>")[0].partition('class="bars"')
    assert "AppKeys.rare" not in by_time
    [first, *_] = re.findall(r"<li>(.*?)</li>", slowest, re.DOTALL)
    assert "AppKeys.rare" in first
    assert "Rare.step" in first
    assert "2.0 s" in first
    assert 'class="state bad">slow<' in first


async def test_findings_are_compared_with_those_of_yesterday(app: HttpBrowser) -> None:
    log = ConsoleKeys(app.keys.draft.store).examinations()
    for hours, count in ((72, 40), (25, 4), (2, 7)):
        at = moment(now_ms()) - timedelta(hours=hours)
        counts: dict[str, dict[str, int]] = {"orphan": {"AppKeys.draft": count}, "no-deadline": {"AppKeys.cart": 1}}
        await log.append(Examination(at=at, who="schedule", examined=100, counts=counts))
    await app.enter("viewer")
    page = (await app.get("/console/findings")).text
    changes: list[Any] = re.findall(r'class="change (\w+)">([^<]*)<', page)
    assert changes == [("more", "+3 since 25 h ago")]
    assert "Examined 2 h ago by schedule" in page


async def test_one_shape_of_unknown_keys_is_drafted_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch, ["tests.console.shop_keys:ShopKeys"]) as (app, access):
        store = app.state.stores["default"]
        await fill(store, carts=1)
        await store.run([("SET", f"other:{number}:name", "x") for number in range(9)])
        browser = HttpBrowser(app, access)
        await browser.enter("operator")
        assert "other:{int}:name" in (await browser.get("/console/unknown")).text
        assert (await browser.post("/console/unknown/draft", shape="made:{up}")).status_code == 404
        assert (await browser.post("/console/unknown/draft", shape="other:{int}:name")).status_code == 303
        await app.state.kits["console"].tasks.settle()
        text = (await browser.get("/console/task/draft")).text
        assert "other:{other_id:int}:name" in text
        assert "legacy:" not in text


async def test_a_limit_of_another_process_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch, [f"{__name__}:SplitKeys"]) as (app, access):
        await app.state.stores["default"].run([("SET", "visits:1", "7")])
        browser = HttpBrowser(app, access)
        await browser.enter("operator")
        page = (await browser.get("/console/key/SplitKeys/visits?key=visits:1")).text
        assert "deleting the key resets it" in page
        assert "/visits/reset" not in page
