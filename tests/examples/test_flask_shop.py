"""The Flask shop: real requests to `examples/flask_shop`, in a process of their own, and the commands of its README."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import forking
from tests.serving import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_shop"
REQUESTS = """
import shop

shop.keys.stock("apple").set(1).wait()
visitor, other_tab, bob = (shop.app.test_client() for _ in range(3))
assert visitor.get("/products").json == visitor.get("/products").json == {"apple": 1, "pear": 0}
assert "Set-Cookie" not in visitor.get("/account").headers, "a visit begins no session"
visitor.post("/cart/apple")
other_tab.set_cookie("session", visitor.get_cookie("session").value)
other_tab.post("/cart/pear")
assert visitor.post("/buy/apple").status_code == 401
visitor.post("/login", data={"user": "ann"})
assert visitor.get("/account").json == {"user": "ann", "cart": {"apple": 1, "pear": 1}, "messages": ["welcome"]}
assert visitor.post("/buy/apple").json["left"] == 0
assert visitor.post("/buy/apple").status_code == 409, "sold out"
answers = [bob.post("/login", data={"user": "bob"}).status_code for _ in range(6)]
assert (answers[0], answers[-1]) == (200, 429)
assert visitor.post("/logout-everywhere").json == {"ended": 1}
assert visitor.get("/account").json["user"] is None
bob.post("/logout")
assert bob.get("/account").json["user"] is None
print("done")
"""


def test_a_cart_survives_sign_in_and_a_piece_is_sold_once(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(EXAMPLE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", REQUESTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_the_commands_of_the_readme_work(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    documented = forking.run(("docs", "shop:ShopKeys"), folder, environment({}))
    assert (documented.returncode, "shop:stock:{sku}" in documented.stdout) == (0, True), documented.stderr
    store = f"sqlite:///{tmp_path}/shop.db"
    subprocess.run(
        [sys.executable, "-c", "import shop; shop.app.test_client().post('/cart/apple')"],
        check=True,
        env={**os.environ, "SHOP_STORE": store},
        cwd=folder,
    )
    examined = forking.run(("doctor", "shop:SessionKeys", "--store", store), folder, environment({}))
    assert (examined.returncode, "3 keys" in examined.stdout) == (0, True), examined.stdout + examined.stderr
