"""The shop keeps its promises: carts before sign-in, stock, codes, limits."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead.schema.check import check
from tests.every_store import on_urls, urls
from tests.real_servers import redis_server
from tests.serving import keystead_command

__all__ = ["redis_server", "urls"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop"


@pytest.fixture
async def shop(urls: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module of the application, with its store open."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("SHOP_STORE", urls["default"])
    module = import_module("fruitshop.app")
    async with module.app.router.lifespan_context(module.app):
        yield module
    for name in [name for name in sys.modules if name.split(".")[0] == "fruitshop"]:
        del sys.modules[name]


class Visitor:
    """A browser: it sends the forms of the page that it has seen last."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.page = ""

    async def see(self) -> str:
        self.page = (await self.client.get("/")).text
        return self.page

    async def send(self, path: str, **fields: str) -> httpx2.Response:
        names = re.findall(r'name="(csrf|number)" value="([^"]+)"', self.page)
        response = await self.client.post(path, data={**dict(names), **fields})
        if response.status_code == 200:
            self.page = response.text
        return response

    async def sign_in(self, email: str) -> None:
        await self.send("/code", email=email)
        await self.send("/sign-in", code=re.findall(r"It is (\d{6})", self.page)[0])
        assert "Sign out" in self.page

    def cart(self) -> dict[str, int]:
        inside = self.page.partition("Your cart")[2].partition("Total")[0]
        return {sku: int(n) for sku, n in re.findall(r"<span>(\w+)</span> <span>(\d+)</span>", inside)}


@asynccontextmanager
async def visiting(shop: Any, address: str = "192.0.2.1") -> AsyncIterator[Visitor]:
    transport = httpx2.ASGITransport(shop.app, client=(address, 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop", follow_redirects=True) as client:
        visitor = Visitor(client)
        await visitor.see()
        yield visitor


@on_urls("sqlite", pytest.param("redis", marks=pytest.mark.matrix))
async def test_a_visitor_fills_a_cart_in_two_tabs_signs_in_and_buys(shop: Any) -> None:
    async with visiting(shop) as ann:
        assert "sid" not in ann.client.cookies  # a visit begins no session
        await ann.send("/cart/apple")
        assert "One apple is in your cart." in ann.page
        assert "One apple is in your cart." not in await ann.see()
        await asyncio.gather(ann.send("/cart/apple"), ann.send("/cart/pear"))
        await ann.see()
        assert ann.cart() == {"apple": 2, "pear": 1}
        await ann.sign_in("ann@example.com")
        assert ann.cart() == {"apple": 2, "pear": 1}
        bought = ann.page
        await ann.send("/buy")
        assert "Thank you for your order." in ann.page
        assert ann.cart() == {}
        assert "2 apple, 1 pear" in ann.page
        ann.page = bought  # back, and a second click
        await ann.send("/cart/plum")
        ann.page = bought
        await ann.send("/buy")
        assert (await shop.keys.stock("plum").get(), await shop.keys.stock("apple").get()) == (5, 3)
        await ann.send("/sign-out")
        assert "You are signed out." in ann.page
        assert ann.cart() == {}
    async with visiting(shop) as again:
        await again.send("/cart/pear")
        await again.sign_in("ann@example.com")
        assert again.cart() == {"pear": 1, "plum": 1}


@on_urls("memory", pytest.param("redis", marks=pytest.mark.matrix))
async def test_of_ten_buyers_of_the_last_pieces_as_many_succeed_as_there_are_pieces(shop: Any) -> None:
    async def buy(n: int) -> bool:
        async with visiting(shop, f"192.0.2.{n}") as visitor:
            await visitor.send("/cart/apple")
            await visitor.sign_in(f"buyer-{n}@example.com")
            await visitor.send("/buy")
            return "Thank you" in visitor.page

    assert sum(await asyncio.gather(*map(buy, range(10)))) == shop.FIRST_STOCK
    assert await shop.keys.stock("apple").get() == 0


@on_urls("memory")
async def test_a_code_works_once_and_guessing_ends_after_five(shop: Any) -> None:
    async with visiting(shop) as ann, visiting(shop, "198.51.100.1") as eve:
        await ann.send("/code", email="ann@example.com")
        code = re.findall(r"It is (\d{6})", ann.page)[0]
        await eve.send("/code", email="eve@example.com")
        await eve.send("/sign-in", code=code)
        assert "wrong or too old" in eve.page
        await ann.send("/sign-in", code=code)
        assert "Sign out" in ann.page
        async with visiting(shop) as late:
            await late.send("/code", email="ann@example.com")
            await late.send("/sign-in", code=code)
            assert "wrong or too old" in late.page
            tried = [(await late.send("/sign-in", code=f"guess{n}")).status_code for n in range(5)]
            assert tried == [200, 200, 200, 429, 429]
        sent = [(await eve.send("/code", email="bob@example.com")).status_code for _ in range(6)]
        assert (sent[0], sent[-1]) == (200, 429)
        forged = await eve.client.post("/cart/apple")
        assert (forged.status_code, forged.json()["code"]) == (403, "CSRF")
        assert "x-csrf-token" in forged.json()["error"]


@pytest.mark.matrix
@on_urls("sqlite")
async def test_its_keys_are_sound_and_the_doctor_finds_nothing(shop: Any, urls: dict[str, str]) -> None:
    keyspaces = import_module("fruitshop.keys")
    assert check([keyspaces.ShopKeys, keyspaces.SessionKeys]) == []
    async with visiting(shop) as ann:
        await ann.send("/cart/apple")
        await ann.sign_in("ann@example.com")
        await ann.send("/buy")
    command = keystead_command(
        "doctor", "fruitshop.keys:ShopKeys", "fruitshop.keys:SessionKeys", "--store", urls["default"]
    )
    examined = await asyncio.to_thread(
        subprocess.run, command, cwd=EXAMPLE, capture_output=True, text=True, check=False
    )
    assert examined.returncode == 0, examined.stdout + examined.stderr
