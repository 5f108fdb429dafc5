"""The shop. Run it with `granian --interface asgi fruitshop.app:app`, and open http://127.0.0.1:8000."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.templating import Jinja2Templates

from fruitshop.keys import Item, Order, ShopKeys
from keystead import connect
from keystead.integrations.asgi import RequestSession, RequestSessionMiddleware, flash, request_session, take_flashes
from keystead.parts.decorators import rate_limit
from keystead.parts.digest import digest
from keystead.parts.limit import LimitReached, RateLimit, client_of

PRODUCTS = {"apple": 50, "pear": 70, "plum": 30}  # prices in cents
FIRST_STOCK = 5
# Without https: cookies are not Secure, and a page shows the code that an e-mail would bring.
DEVELOPMENT = os.environ.get("SHOP_PRODUCTION") is None

store = connect(os.environ.get("SHOP_STORE", "sqlite:///shop.db"))
keys = ShopKeys(store)
guesses = RateLimit(keys.guesses)
pages = Jinja2Templates(Path(__file__).parent / "templates")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with store:
        for sku in PRODUCTS:
            await keys.stock(sku).start_at(FIRST_STOCK)
        yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(RequestSessionMiddleware, store=store, prefix="shop", csrf=True, development=DEVELOPMENT)
Session = Annotated[RequestSession, Depends(request_session)]


def front_page() -> Response:
    return RedirectResponse("/", 303)


def too_many(error: LimitReached) -> Response:
    return Response("Too many attempts; please wait.", 429, {"retry-after": str(error.retry_after_s)})


@app.get("/")
async def index(request: Request, session: Session) -> Response:
    stocks = await keys.run(*(keys.stock(sku).get() for sku in PRODUCTS))
    orders = await keys.orders(session.user).get() if session.user else None
    shown: dict[str, Any] = {
        "products": [(sku, cents, left) for (sku, cents), left in zip(PRODUCTS.items(), stocks, strict=True)],
        "cart": session.get("cart", {}),
        "cents": price_of(session.get("cart", {})),
        "user": session.user,
        "orders": orders or {},
        "email": session.get("email"),
        "flashes": take_flashes(request),
        "number": secrets.token_hex(8),
        "csrf": session.csrf_token,
    }
    return pages.TemplateResponse(request, "index.html", shown)


@app.post("/cart/{sku}")
async def add(request: Request, session: Session, sku: str) -> Response:
    if sku not in PRODUCTS:
        raise HTTPException(404)
    # By a function: of two tabs that add at the same moment, both succeed.
    await session.change(lambda data: {**data, "cart": sums(data.get("cart", {}), {sku: 1})})
    flash(request, f"One {sku} is in your cart.")
    return front_page()


@app.post("/buy")
async def buy(request: Request, session: Session, number: Annotated[str, Form()]) -> Response:
    cart = session.get("cart")
    if session.user is None or not cart:
        flash(request, "Sign in and fill your cart first.", "error")
        return front_page()
    items = [Item(sku=sku, amount=amount) for sku, amount in cart.items()]
    done = await keys.buy(session.user, number, Order(items=items, cents=price_of(cart)))
    if done:
        await session.change(lambda data: {**data, "cart": difference(data.get("cart", {}), cart)})
        flash(request, "Thank you for your order.")
    elif done.stopped != "ordered":
        flash(request, f"There is not enough {done.stopped} left. You have not been charged.", "error")
    return front_page()


@app.post("/code")
@rate_limit(keys.code_requests, key=lambda request: client_of(request.client.host), refused=too_many)
async def send_code(request: Request, session: Session, email: Annotated[str, Form(max_length=200)]) -> Response:
    code = f"{secrets.randbelow(10**6):06}"
    await keys.code(digest(f"{email} {code}")).set(email)
    session["email"] = email
    flash(request, "We have sent you a code." + (f" It is {code}." if DEVELOPMENT else ""))
    return front_page()


@app.post("/sign-in")
async def sign_in(request: Request, session: Session, code: Annotated[str, Form(max_length=20)]) -> Response:
    email = session.get("email", "")
    if verdict := await guesses.hit(email):
        if await keys.code(digest(f"{email} {code}")).consume() == email:  # once means once
            left = await keys.left_cart(email).consume() or {}

            def merge(data: dict[str, Any]) -> dict[str, Any]:
                """What was in the cart before sign-in, and what this user left there the last time."""
                return {"cart": sums(data.get("cart", {}), left)}

            await session.sign_in(email, merge)
        else:
            flash(request, "That code is wrong or too old.", "error")
        return front_page()
    return too_many(LimitReached.of(verdict))


@app.post("/sign-out")
async def sign_out(request: Request, session: Session) -> Response:
    if session.user and session.get("cart"):
        await keys.left_cart(session.user).set(session["cart"])
    await session.end()
    flash(request, "You are signed out.")
    return front_page()


def price_of(cart: Mapping[str, int]) -> int:
    return sum(PRODUCTS[sku] * amount for sku, amount in cart.items())


def sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def difference(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) - Counter(other))
