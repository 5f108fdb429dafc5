"""ASGI middleware around every route. From the outside in:

`RequestLog`       request id, access log, metrics
`Forwarded`        client address and scheme behind a trusted proxy
`SecurityHeaders`  security headers on every response
`Cors`             cross-origin access to shared paths
`ErrorGuard`       a response for unexpected errors
`Head`             HEAD as GET without the body
`TimeLimit`        request timeout
`BodyLimit`        maximum body size
`Visitor`          the signed-in user, for page headers
"""

from keystead.server.middleware.body_limit import BodyLimit
from keystead.server.middleware.cors import Cors
from keystead.server.middleware.error_guard import ErrorGuard
from keystead.server.middleware.forwarded import Forwarded
from keystead.server.middleware.head_requests import Head
from keystead.server.middleware.request_log import RequestLog
from keystead.server.middleware.security_headers import SECURITY_HEADERS, SecurityHeaders
from keystead.server.middleware.signed_in_visitor import Visitor
from keystead.server.middleware.time_limit import TimeLimit

__all__ = [
    "SECURITY_HEADERS",
    "BodyLimit",
    "Cors",
    "ErrorGuard",
    "Forwarded",
    "Head",
    "RequestLog",
    "SecurityHeaders",
    "TimeLimit",
    "Visitor",
]
