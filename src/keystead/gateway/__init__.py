"""The gateway: any store as a server of the Upstash REST API, for clients such as `@upstash/redis`."""

from keystead.gateway.gateway_app import GatewayApp
from keystead.gateway.gateway_keys import GatewayKeys, GatewayToken
from keystead.gateway.gateway_tokens import GatewayTokens

__all__ = ["GatewayApp", "GatewayKeys", "GatewayToken", "GatewayTokens"]
