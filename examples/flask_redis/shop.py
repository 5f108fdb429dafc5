"""A small shop: logins, carts, and how often each product was seen. `SHOP_STEP` chooses how it talks to Redis."""

import os
from importlib import import_module

from flask import Flask, abort, request

REDIS = os.environ.get("SHOP_REDIS", "redis://localhost:6379/0")
STEP = os.environ.get("SHOP_STEP", "before")  # before, typed_reads or typed_writes

app = Flask(__name__)
data = import_module(STEP).ShopData(REDIS)


@app.post("/login")
def log_in():
    return {"token": data.log_in(request.form["user"])}


@app.post("/logout")
def log_out():
    data.log_out(token())
    return {}


@app.post("/cart/<sku>")
def put(sku):
    return {sku: data.add_to_cart(user(), sku)}


@app.get("/cart")
def cart():
    return data.cart_of(user())


@app.get("/product/<sku>")
def product(sku):
    return {"sku": sku, "views": data.count_view(sku)}


@app.get("/most-seen")
def most_seen():
    return {sku: data.views_of(sku) for sku in request.args.getlist("sku")}


def token():
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def user():
    return data.user_of(token()) or abort(401)
