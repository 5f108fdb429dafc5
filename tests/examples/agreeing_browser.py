"""A browser for `$BROWSER`, whose user agrees to every sign-in at once."""

AGREES = """
import sys
from urllib.parse import parse_qsl, urlsplit
import httpx2
asked = urlsplit(sys.argv[1])
with httpx2.Client(trust_env=False, timeout=60) as browser:
    form = {**dict(parse_qsl(asked.query)), "person": "demo-ada"}
    agreed = browser.post(f"{asked.scheme}://{asked.netloc}{asked.path}", data=form)
    browser.get(agreed.headers["location"])
"""
