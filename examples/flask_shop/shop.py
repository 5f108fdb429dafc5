"""A small shop in Flask: sessions, a cart that survives sign-in, a limit, a cached page and an atomic purchase."""

from __future__ import annotations

import os
import uuid

from flask import Flask, abort, flash, get_flashed_messages, request, session

from keystead import Counter, Keyspace, Steps, Value, after, connect, never, procedure, wait
from keystead.integrations.flask import CachedPage, KeysteadSessions, cached_view, rate_limit
from keystead.parts.decorators import Cached, Limited


class ShopKeys(Keyspace):
    """The key document of the shop, besides sessions."""

    stock = Counter("shop:stock:{sku}", lifetime=never("inventory"), doc="pieces left")
    order = Value("shop:order:{id}", dict[str, str], lifetime=after("90d"), doc="who bought what")
    attempts = Limited("shop:attempts:{client}", "5/minute", doc="sign-ins of a client address")
    page = Cached(
        "shop:page:{path<=200}", CachedPage, lifetime=after("1m"), doc="pages that are the same for everybody"
    )

    @procedure
    def buy(self, sku: str, id: str, order: dict[str, str]) -> Steps[int]:
        """Take one piece and write the order, or neither."""
        left = self.stock(sku).decrement()
        return Steps(
            self.stock(sku).at_least(1).otherwise("sold out"),
            self.order(id).add(order).required(),
            left,
        ).giving(left)


store = connect(os.environ.get("SHOP_STORE", "sqlite:///shop.db"))
keys = ShopKeys(store)
app = Flask(__name__)
sessions = KeysteadSessions(app, store, sessions_per_user=5, anonymous_lifetime="1d")
SessionKeys = sessions.keyspace  # for `keystead doctor shop:SessionKeys`


@app.get("/products")
@cached_view(keys.page)  # concurrent misses run the view once
def products() -> dict[str, int]:
    return {sku: keys.stock(sku).get().wait() for sku in ("apple", "pear")}


@app.post("/cart/<sku>")
def put(sku: str) -> dict[str, int]:
    cart = session.setdefault("cart", {})  # a visitor's session begins here, not with a visit
    cart[sku] = cart.get(sku, 0) + 1
    return dict(cart)


@app.post("/login")
@rate_limit(keys.attempts)
def log_in() -> dict[str, str]:
    session["_user_id"] = request.form["user"]  # check a password here; Flask-Login sets this key by itself
    flash("welcome")
    return {"user": session["_user_id"]}


@app.get("/account")
def account() -> dict[str, object]:
    return {"user": session.get("_user_id"), "cart": session.get("cart"), "messages": get_flashed_messages()}


@app.post("/buy/<sku>")
def buy(sku: str) -> dict[str, object]:
    user = session.get("_user_id")
    if user is None:
        abort(401)
    id = uuid.uuid4().hex
    done = wait(keys.buy(sku, id, {"user": user, "sku": sku}))
    if not done:
        abort(409, done.stopped)
    return {"order": id, "left": done.value}


@app.post("/logout")
def log_out() -> dict[str, bool]:
    session.clear()
    return {"ended": True}


@app.post("/logout-everywhere")
def log_out_everywhere() -> dict[str, int]:
    return {"ended": sessions.end_sessions(session["_user_id"])}
