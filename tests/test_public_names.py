"""`keystead` has few names: what an application needs on its first day. Those that have moved still work."""

from __future__ import annotations

from importlib import import_module

import pytest

import keystead


def test_the_public_face_is_at_most_thirty_names_and_each_is_there() -> None:
    assert len(keystead.__all__) <= 30
    assert [name for name in keystead.__all__ if getattr(keystead, name, None) is None] == []
    assert keystead.__all__ == sorted(keystead.__all__)


@pytest.mark.parametrize("module", keystead._MOVED)
def test_a_name_that_has_moved_still_works_and_says_where_it_is(module: str) -> None:
    for name in keystead._MOVED[module].split():
        with pytest.warns(DeprecationWarning, match=f"^write `from {module} import {name}`$") as told:
            found = getattr(keystead, name)
        assert found is getattr(import_module(module), name)
        assert told[0].filename == __file__


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sesions'"):
        getattr(keystead, "Sesions")  # noqa: B009 - mypy knows that it is not there
