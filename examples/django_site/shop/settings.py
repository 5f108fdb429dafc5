"""Settings: only what the example needs. `SHOP_STORE` names another store, such as redis://localhost:6379/0."""

import os
from pathlib import Path

BASE = Path(os.environ.get("SHOP_DATA", Path(__file__).parent.parent))
STORE = os.environ.get("SHOP_STORE", f"sqlite:///{BASE}/shop.keystead.db")

SECRET_KEY = os.environ.get("SHOP_SECRET", "for development only")
DEBUG = os.environ.get("SHOP_DEBUG", "1") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "keystead.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "keystead.integrations.django.StoreOutageMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT_URLCONF = "shop.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE / "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_REDIRECT_URL = "/cart"
USE_TZ = True

# Everything of Keystead:
KEYSTEAD = {"STORE": STORE, "SESSIONS_PER_USER": 3}
SESSION_ENGINE = "keystead.integrations.django.sessions"
CACHES = {"default": {"BACKEND": "keystead.integrations.django.KeysteadCache", "LOCATION": STORE}}
