"""A scripted browser login: follows redirects, keeps cookies, and fills in the one form."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import httpx2

from tests.servers import NotReady

_MOST_STEPS = 10


async def log_in(authorize_url: str, account: str, *, browser: httpx2.AsyncClient | None = None) -> str:
    """Log in as this account and consent; the URL of the callback, with code, state and iss, not yet visited.

    `browser` keeps its cookies from one login to the next; without it, each login is in a new one.
    """
    return await _play(authorize_url, {"login": account, "decision": "allow"}, browser)


async def cancel_login(authorize_url: str, *, browser: httpx2.AsyncClient | None = None) -> str:
    """Cancel at the provider; the URL of the callback, with error, state and iss, not yet visited."""
    return await _play(authorize_url, {"decision": "cancel"}, browser)


async def _play(authorize_url: str, form: dict[str, str], browser: httpx2.AsyncClient | None) -> str:
    if browser is None:
        async with httpx2.AsyncClient(trust_env=False) as own:
            return await _play(authorize_url, form, own)
    url = authorize_url
    answer = await browser.get(url, follow_redirects=False)
    for _ in range(_MOST_STEPS):
        if answer.is_redirect:
            url = urljoin(url, str(answer.headers["location"]))
            if not _same_site(url, authorize_url):
                return url
            answer = await browser.get(url, follow_redirects=False)
        elif answer.is_success:
            answer = await browser.post(url, data=form, follow_redirects=False)
        else:
            break
    raise NotReady(f"the provider did not send the browser back: status {answer.status_code}: {answer.text[:2000]}")


def _same_site(one: str, other: str) -> bool:
    return urlsplit(one)[:2] == urlsplit(other)[:2]
