"""The gateway: any store as a server of the Upstash REST API, for clients such as `@upstash/redis`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keystead.gateway.gateway_keys import GatewayKeys, GatewayToken
from keystead.gateway.gateway_tokens import GatewayTokens

if TYPE_CHECKING:
    from keystead.gateway.gateway_app import GatewayApp
    from keystead.gateway.gateway_kit import KIT, ROOT_KIT

__all__ = ["KIT", "ROOT_KIT", "GatewayApp", "GatewayKeys", "GatewayToken", "GatewayTokens"]

_LAZY: Final = {"KIT": "gateway_kit", "ROOT_KIT": "gateway_kit", "GatewayApp": "gateway_app"}


def __getattr__(name: str) -> Any:
    """Lazy imports: commands such as `keystead doctor` read the key document, and never load the web framework."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
