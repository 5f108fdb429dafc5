"""The pages of the shop, as JSON to keep the example short."""

import secrets

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from keystead import wait
from keystead.integrations.django import abind, bind, cached_view, rate_limit
from keystead.integrations.django.sessions import end_other_sessions, list_sessions
from shop.keys import ShopKeys

PRODUCTS = {"apple": "An apple", "pear": "A pear"}


@cached_view(ShopKeys.page)
def products(request: HttpRequest) -> JsonResponse:
    """The same for everybody: concurrent misses run this once."""
    return JsonResponse(PRODUCTS)


@rate_limit(ShopKeys.searches)
def search(request: HttpRequest) -> JsonResponse:
    wanted = request.GET.get("q", "")
    return JsonResponse({sku: text for sku, text in PRODUCTS.items() if wanted in text})


def cart(request: HttpRequest) -> JsonResponse:
    return JsonResponse({name: count for name, count in request.session.items() if name in PRODUCTS})


@require_POST
def add(request: HttpRequest, sku: str) -> JsonResponse:
    """Each product is a key of the session, so two requests that add different ones both survive."""
    request.session[sku] = request.session.get(sku, 0) + 1
    return JsonResponse({sku: request.session[sku]})


@require_POST
@login_required
def buy(request: HttpRequest, sku: str) -> JsonResponse:
    done = wait(bind(ShopKeys).buy(sku, secrets.token_hex(8), request.user.get_username()))
    return JsonResponse({"left": done.value}) if done else JsonResponse({"error": "sold out"}, status=409)


async def stock(request: HttpRequest, sku: str) -> JsonResponse:
    """An asynchronous view uses the store of its own event loop."""
    keys = await abind(ShopKeys)
    return JsonResponse({"left": await keys.stock(sku).get()})


@login_required
def devices(request: HttpRequest) -> JsonResponse:
    """Where the user is signed in. POST: sign out everywhere else."""
    if request.method == "POST":
        return JsonResponse({"ended": end_other_sessions(request)})
    return JsonResponse({"devices": [one.id for one in list_sessions(request.user)]})
