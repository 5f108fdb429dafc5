"""The Django application: `INSTALLED_APPS = [..., "keystead.integrations.django"]`."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class KeysteadConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Checks the settings at the start, imports `keys.py` of each application, and adds `manage.py keystead`."""

    name = "keystead.integrations.django"
    label = "keystead"
    verbose_name = "Keystead"

    def ready(self) -> None:
        from keystead.integrations.django import settings_checks  # noqa: F401 - it registers the checks

        autodiscover_modules("keys")
