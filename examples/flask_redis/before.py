"""Before: redis-py, and the keys are in everybody's head."""

import json
import secrets
import time

import redis


class ShopData:
    def __init__(self, url):
        self.redis = redis.Redis.from_url(url, decode_responses=True)

    def log_in(self, user):
        token = secrets.token_hex(16)
        self.redis.set(f"login:{token}", json.dumps({"user": user, "since": int(time.time() * 1000)}), ex=1800)
        return token

    def log_out(self, token):
        self.redis.delete(f"login:{token}")

    def user_of(self, token):
        found = self.redis.get(f"login:{token}")
        return json.loads(found)["user"] if found else None

    def add_to_cart(self, user, sku):
        return self.redis.hincrby(f"cart:{user}", sku, 1)  # nothing ever deletes a cart

    def cart_of(self, user):
        return {sku: int(count) for sku, count in self.redis.hgetall(f"cart:{user}").items()}

    def count_view(self, sku):
        return self.redis.incr(f"views:{sku}")

    def views_of(self, sku):
        return int(self.redis.get(f"views:{sku}") or 0)
