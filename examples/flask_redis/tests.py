"""The same requests at each step, on the same Redis: `SHOP_REDIS=redis://localhost:6379/15 python -m pytest tests.py`.

It empties that database.
"""

from importlib import import_module

import nightly
import pytest
import redis
import shop
from keys import ShopKeys

from keystead import connect

STEPS = ("before", "typed_reads", "typed_writes")
OLD = redis.Redis.from_url(shop.REDIS, decode_responses=True)


@pytest.fixture(autouse=True)
def empty():
    OLD.flushdb()


def client(step):
    shop.data = import_module(step).ShopData(shop.REDIS)
    return shop.app.test_client()


def logged_in(step, user="ann"):
    answer = client(step).post("/login", data={"user": user})
    return {"Authorization": f"Bearer {answer.json['token']}"}


@pytest.mark.parametrize("reader", STEPS)
@pytest.mark.parametrize("writer", STEPS)
def test_each_step_reads_what_each_other_step_wrote(writer, reader):
    """So that servers of two steps run side by side during a deployment, and each step can be undone."""
    login = logged_in(writer)
    for _ in range(2):
        assert client(writer).post("/cart/apple", headers=login).status_code == 200
        client(writer).get("/product/pear")
    assert client(reader).get("/cart", headers=login).json == {"apple": 2}
    assert client(reader).get("/most-seen?sku=pear&sku=plum").json == {"pear": 2, "plum": 0}
    assert client(reader).get("/product/pear").json["views"] == 3
    client(writer).post("/logout", headers=login)
    assert client(reader).get("/cart", headers=login).status_code == 401


@pytest.mark.parametrize("step", STEPS)
def test_a_token_that_was_never_issued_is_nobody(step):
    for token in ("", "9f86d0", "x:y", "A" * 32):
        assert client(step).get("/cart", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_with_typed_writes_every_cart_has_the_declared_lifetime():
    client("before").post("/cart/apple", headers=logged_in("before"))
    assert OLD.ttl("cart:ann") == -1, "the defect that the doctor finds"
    client("typed_writes").post("/cart/apple", headers=logged_in("typed_writes"))
    assert 29 * 86_400 < OLD.ttl("cart:ann") <= 30 * 86_400
    assert 1790 < OLD.ttl(OLD.keys("login:*")[0]) <= 1800


def test_the_guard_observes_then_refuses_what_contradicts_the_key_document(capsys):
    nightly.give_samples(shop.REDIS, "observe", ["ann"])
    assert capsys.readouterr().out == "no-deadline: ShopKeys.cart\n"
    assert OLD.hgetall("cart:ann") == {"sample": "1"}
    nightly.give_samples(shop.REDIS, "enforce", ["bob"])
    assert "refused: HSET cart:bob: no-deadline" in capsys.readouterr().out
    assert not OLD.exists("cart:bob")
    keys = ShopKeys(connect(shop.REDIS))
    keys.cart("bob").increment("apple").wait()
    nightly.give_samples(shop.REDIS, "enforce", ["bob"])
    assert keys.cart("bob").get().wait() == {"apple": 1, "sample": 1}
