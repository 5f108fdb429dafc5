"""The examples of the start page, for pasting into a shell."""

import shlex
import sys
from typing import Final, NamedTuple

# It uses a new database: the shell may be in any folder without the password of the server's store, and example keys
# should not mix with application data.
_EXAMPLE: Final = """\
cat > first_steps.py <<'END'
import asyncio
from keystead import Keyspace, Set, Value, after, connect, sliding

class FirstKeys(Keyspace):
    devices = Set("user:{user}:devices", str, lifetime=sliding("30d", touch_every="1h"), doc="devices")
    login = Value("login:{user}:{device}", str, lifetime=after("30d"), listed_in=devices, doc="a login")

async def main():
    async with connect("sqlite:///first_steps.db") as store:
        keys = FirstKeys(store)
        for device in ("laptop", "phone"):
            await keys.login(user="ann", device=device).set("09:41")  # and adds it to devices
        await keys.login(user="ann", device="phone").delete()  # and removes it from devices
        print(await keys.devices("ann").live())

if __name__ == "__main__":
    asyncio.run(main())
END
PYTHON first_steps.py
"""
_PROJECT: Final = """\
PYTHON -m keystead init my-project
"""
_COMMANDS: Final = """\
PYTHON -m keystead check first_steps
PYTHON -m keystead docs first_steps
PYTHON -m keystead show --keyspace first_steps --store sqlite:///first_steps.db
PYTHON -m keystead doctor first_steps --store sqlite:///first_steps.db
"""


class FirstSteps(NamedTuple):
    """Shell scripts: a whole project; or one file, and what to run next in its folder."""

    project: str
    example: str
    commands: str


def first_steps() -> FirstSteps:
    """The scripts, with the interpreter of this server, which has Keystead installed."""
    python = shlex.quote(sys.executable or "python3")
    return FirstSteps(*(script.replace("PYTHON", python) for script in (_PROJECT, _EXAMPLE, _COMMANDS)))
