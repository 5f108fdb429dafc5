"""Deprecated names: they work until the next major version, with a DeprecationWarning that names the replacement."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def forward_old_names(module: str, names: Mapping[str, str], *, stacklevel: int = 2) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module whose public names have changed.

        if not TYPE_CHECKING:  # type checkers still report misspelt names
            __getattr__ = forward_old_names(__name__, {"Answer": "CacheResult", "BadUrl": "keystead.errors.BadUrl"})

    `names` maps each old name to the new one: a bare name is in the same module, a dotted one in another.
    Any other name raises AttributeError, as usual.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(".")
        warnings.warn(f"write `from {home or module} import {new}`", DeprecationWarning, stacklevel=stacklevel)
        return getattr(import_module(home or module), new)

    return find
