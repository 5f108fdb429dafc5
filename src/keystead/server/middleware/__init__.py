"""What stands around every route, each a plain ASGI application around the next. From the outside in:

`Record`           the request id, a line in the log, the metrics
`Forwarded`        who really asks, where a trusted proxy says so
`SecurityHeaders`  headers that every answer carries
`Cors`             which paths pages of other sites may use
`Guard`            an answer where a route failed in a way that nobody expected
`Head`             HEAD is GET without the body
`TimeLimit`        no request takes for ever
`BodyLimit`        no body is larger than is allowed
`Visitor`          who looks at a page, for its header
"""

from keystead.server.middleware.body_limit import BodyLimit
from keystead.server.middleware.cors import Cors
from keystead.server.middleware.forwarded import Forwarded
from keystead.server.middleware.error_guard import Guard
from keystead.server.middleware.head_requests import Head
from keystead.server.middleware.request_log import Record
from keystead.server.middleware.security_headers import SECURITY_HEADERS, SecurityHeaders
from keystead.server.middleware.time_limit import TimeLimit
from keystead.server.middleware.signed_in_visitor import Visitor

__all__ = [
    "SECURITY_HEADERS",
    "BodyLimit",
    "Cors",
    "Forwarded",
    "Guard",
    "Head",
    "Record",
    "SecurityHeaders",
    "TimeLimit",
    "Visitor",
]
