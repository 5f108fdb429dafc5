"""The OpenID Connect provider that tests start: it is real, ready, strict, and gone afterwards."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from playwright.async_api import Browser

from tests import oidc
from tests.oidc import OidcProvider, cancel_login, log_in, oidc_provider
from tests.servers import MissingProgram, NotReady, wait_until

pytestmark = pytest.mark.matrix  # they are used by all tests, which fail if a server does

REDIRECT_URI = "http://127.0.0.1:8700/callback"
PACKAGE = Path(oidc.__file__).parent
CHECKOUT = PACKAGE.parents[1]
# RFC 7636, appendix B
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def authorize_url(provider: OidcProvider, **changed: str) -> str:
    asked = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": REDIRECT_URI,
        "scope": "openid profile",
        "state": "s",
        "nonce": "n",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    } | changed
    return f"{provider.issuer}/auth?{urlencode({name: value for name, value in asked.items() if value})}"


def query_of(url: str) -> dict[str, str]:
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_ready_inside_the_block_and_gone_after_it() -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        pid = provider.pid
        metadata = httpx2.get(f"{provider.issuer}/.well-known/openid-configuration", trust_env=False).json()
        assert metadata["issuer"] == provider.issuer
        assert metadata["code_challenge_methods_supported"] == ["S256"]
    assert not runs(pid)


def test_it_ends_with_a_test_run_that_is_killed() -> None:
    script = (
        "import signal\n"
        "from tests.oidc import oidc_provider\n"
        f"with oidc_provider(['{REDIRECT_URI}']) as provider:\n"
        "    print(provider.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not runs(pid), "the provider ends with the process that started it")


async def test_it_sends_a_browser_back_with_code_state_and_issuer() -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        back = await log_in(authorize_url(provider), "ada")
        assert back.startswith(f"{REDIRECT_URI}?")
        assert query_of(back).keys() == {"code", "state", "iss"}
        cancelled = await cancel_login(authorize_url(provider))
        assert query_of(cancelled)["error"] == "access_denied"


async def test_it_refuses_what_a_loose_one_would_take() -> None:
    with oidc_provider([REDIRECT_URI]) as provider:
        without_pkce = await log_in(authorize_url(provider, code_challenge="", code_challenge_method=""), "ada")
        assert query_of(without_pkce)["error"] == "invalid_request"
        with pytest.raises(NotReady, match="status 400"):
            await log_in(authorize_url(provider, redirect_uri=f"{REDIRECT_URI}/other"), "ada")


def test_a_missing_piece_is_one_sentence_that_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYSTEAD_NODE", str(tmp_path))
    with pytest.raises(MissingProgram, match=r"run `scripts/node\.sh`"), oidc_provider([REDIRECT_URI]):
        pass


def test_the_pinned_packages_have_hashes_and_name_no_place() -> None:
    locked = json.loads((PACKAGE / "package-lock.json").read_text())["packages"]
    packages = {name: one for name, one in locked.items() if name}
    assert "node_modules/oidc-provider" in packages
    assert [name for name, one in packages.items() if not one["integrity"].startswith("sha512-")] == []
    assert [name for name, one in packages.items() if "resolved" in one] == []


async def test_a_real_browser_can_log_in(browser: Browser) -> None:
    with oidc_provider([REDIRECT_URI], accounts={"ada": {"name": "Ada"}}) as provider:
        page = await browser.new_page()
        await page.goto(authorize_url(provider))
        await page.get_by_label("Account").fill("ada")
        # Nobody listens there: the test only wants to know where the browser is sent.
        async with page.expect_request(f"{REDIRECT_URI}?*") as back:
            await page.get_by_role("button", name="Allow").click()
        sent = {
            "grant_type": "authorization_code",
            "code": query_of((await back.value).url)["code"],
            "redirect_uri": REDIRECT_URI,
            "code_verifier": VERIFIER,
        }
        async with httpx2.AsyncClient(trust_env=False, auth=(provider.client_id, provider.client_secret)) as http:
            tokens = (await http.post(f"{provider.issuer}/token", data=sent)).json()
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        async with httpx2.AsyncClient(trust_env=False, headers=headers) as http:
            assert (await http.get(f"{provider.issuer}/me")).json() == {"sub": "ada", "name": "Ada"}
