"""Step 4: writes are typed, too. Each has the lifetime that keys.py declares, and redis-py is gone."""

import secrets
from datetime import UTC, datetime

import typed_reads
from keys import Login, ShopKeys

from keystead import connect


class ShopData(typed_reads.ShopData):
    def __init__(self, url):
        self.keys = ShopKeys(connect(url))

    def log_in(self, user):
        token = secrets.token_hex(16)
        self.keys.login(token).set(Login(user=user, since=datetime.now(UTC))).wait()
        return token

    def log_out(self, token):
        if typed_reads.is_token(token):
            self.keys.login(token).delete().wait()

    def add_to_cart(self, user, sku):
        return self.keys.cart(user).increment(sku).wait()

    def count_view(self, sku):
        return self.keys.views(sku).increment().wait()
