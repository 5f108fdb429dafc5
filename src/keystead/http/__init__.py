"""What all HTTP surfaces share, below the kits: nothing here knows a kit or a page.

`refusals`             errors as status, code and sentence, and what each error of the library is
`csrf`                 which requests that change something come from a page of this site; `csrf_field` finds the token
`cookies`              cookies that hold secrets: written, cleared and parsed in one place
`bearer`               the header `Authorization: Bearer`, and the challenge of RFC 6750
`rate_limits`          429, `Retry-After` and the `RateLimit-*` headers
`accept`               `Accept` and `Accept-Language`
`responses`            JSON that no cache keeps, with cookies
`server_sent_events`   what a browser's EventSource reads
`dependencies`         bearer tokens and rate limits, for routes of FastAPI
"""
