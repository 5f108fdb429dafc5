"""Middleware around every route, each a plain ASGI application around the next. From the outside in:

`RequestLog`           the request id, a line in the log, the metrics
`Forwarded`        who really asks, where a trusted proxy says so
`SecurityHeaders`  headers that every answer carries
`Cors`             which paths pages of other sites may use
`ErrorGuard`            an answer where a route failed in a way that nobody expected
`Head`             HEAD is GET without the body
`TimeLimit`        no request takes for ever
`BodyLimit`        no body is larger than is allowed
`Visitor`          who looks at a page, for its header
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
