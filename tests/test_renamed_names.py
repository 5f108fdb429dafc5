"""Public names that were renamed keep working for one release, and warn with what to write instead."""

from __future__ import annotations

from importlib import import_module

import pytest

from keystead.deprecation import forward_old_names

RENAMED = {
    "keystead.parts.cache": "Answer=CacheResult Counts=CacheCounts Look=CacheLookup Mark=LoadMarker Marks=LoadMarkers",
    "keystead.parts.limit": "Together=CombinedLimit",
    "keystead.parts.outbox": "Counts=DeliveryCounts",
    "keystead.parts.refresh": "Begun=NewChain Refused=RotationRefused",
    "keystead.parts.renewal": "Held=HeldTokens",
    "keystead.parts.tables": "Change=TableChange Plan=TableUpgrade",
    "keystead.testing": "Subject=StoreUnderTest",
}


@pytest.mark.parametrize("module", RENAMED)
def test_an_old_name_is_the_new_thing_and_warns_at_the_line_that_uses_it(module: str) -> None:
    for old, new in (pair.split("=") for pair in RENAMED[module].split()):
        with pytest.warns(DeprecationWarning, match=f"^write `from {module} import {new}`$") as warned:
            found = getattr(import_module(module), old)
        assert found is getattr(import_module(module), new)
        assert {warning.filename for warning in warned} == {__file__}


def test_an_old_name_can_still_be_imported() -> None:
    with pytest.warns(DeprecationWarning, match="CacheResult") as warned:
        from keystead.parts.cache import Answer  # type: ignore[attr-defined]
    assert Answer.__name__ == "CacheResult"
    assert {warning.filename for warning in warned} == {__file__}


def test_a_name_that_moved_to_another_module_is_found_there() -> None:
    with pytest.warns(DeprecationWarning, match="^write `from keystead.errors import BadUrl`$"):
        found = forward_old_names("keystead.stores", {"BadUrl": "keystead.errors.BadUrl"})("BadUrl")
    assert found is import_module("keystead.errors").BadUrl


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'keystead.parts.cache' has no attribute 'Cahce'$"):
        getattr(import_module("keystead.parts.cache"), "Cahce")  # noqa: B009 - it is not there
