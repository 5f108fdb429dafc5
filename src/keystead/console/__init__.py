"""The console: look at the keys of any keyspace in a browser, and change them with care."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keystead.console.console_keys import ConsoleKeys

if TYPE_CHECKING:
    from keystead.console.console_kit import KIT

__all__ = ["KIT", "ConsoleKeys"]

_LAZY: Final = {"KIT": "console_kit"}


def __getattr__(name: str) -> Any:
    """Lazy imports: commands such as `keystead doctor` read the key document, and never load the web framework."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
