"""What to try first on the store that is running: an example in Python and one for the shell."""

import json
import re
import shlex
from typing import Final, NamedTuple

_HIDDEN: Final = "://***@"  # what a store's URL shows in the place of a user and a password
_FROM_ENVIRONMENT: Final = 'os.environ["KEYSTEAD_STORE"]'
_PYTHON: Final = """\
{imports}
import keystead

async def main():
    async with keystead.connect({url}) as store:
        await store.run([("SET", "first-steps", "hello", "EX", 60)])
        print(await store.run([("GET", "first-steps")]))  # [b'hello']

asyncio.run(main())
"""
_RELATIVE_FILE: Final = re.compile("sqlite:///[^/]")


class FirstSteps(NamedTuple):
    python: str
    note: str  # what the Python example needs beside Keystead itself; may be empty
    shell: str


def first_steps(store_url: str, home: str) -> FirstSteps:
    """Examples for the store of this URL (without secrets) and the server whose start page is `home`."""
    health = f"curl {shlex.quote(home + 'healthz')}"  # quoted, for the host in it is what the client sent
    if _HIDDEN in store_url:
        python = _PYTHON.format(imports="import asyncio\nimport os", url=_FROM_ENVIRONMENT)
        return FirstSteps(
            python, "Set KEYSTEAD_STORE to the URL of this store; its password is not shown here.", health
        )
    python = _PYTHON.format(imports="import asyncio", url=json.dumps(store_url, ensure_ascii=False))
    return FirstSteps(python, _note(store_url), health)


def _note(store_url: str) -> str:
    if store_url == "memory://":
        return "Each connection to memory:// has a store of its own, so this server does not see the key."
    if _RELATIVE_FILE.match(store_url):
        return "Run it in the folder that Keystead was started in, so that both use the same file."
    return ""
