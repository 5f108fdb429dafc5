"""HTTP building blocks for kits, the server and integrations. Nothing here knows a kit or a page.

`refusals`             error responses: status, code and sentence
`csrf`                 CSRF rules; `csrf_field` finds the token in a body
`cookies`              cookies that hold secrets
`bearer`               bearer tokens and the challenge of RFC 6750
`rate_limits`          429, `Retry-After` and the `RateLimit-*` headers
`accept`               content negotiation
`responses`            uncached JSON, with cookies
`server_sent_events`   the format that a browser's EventSource reads
`dependencies`         FastAPI dependencies: bearer tokens and rate limits
"""
