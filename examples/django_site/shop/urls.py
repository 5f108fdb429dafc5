"""The URLs of the shop."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from shop import views

urlpatterns = [
    path("", views.products),
    path("search", views.search),
    path("cart", views.cart),
    path("cart/<slug:sku>", views.add),
    path("buy/<slug:sku>", views.buy),
    path("stock/<slug:sku>", views.stock),
    path("devices", views.devices),
    path("accounts/login/", LoginView.as_view()),
    path("accounts/logout/", LogoutView.as_view(next_page="/")),
]
