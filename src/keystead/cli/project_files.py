"""The files that `keystead init` writes."""

import json
from typing import Any, Final

from keystead.stores import Store

_KEYS: Final = '''"""The keys of this application: each is declared once, with its value and lifetime."""

from keystead import Counter, Keyspace, Value, after
from pydantic import BaseModel


class Note(BaseModel):
    author: str
    text: str


class AppKeys(Keyspace):
    """Notes that are kept for a week."""

    reads = Counter("reads:{id}", lifetime=after("7d"), doc="how often a note was read")
    note = Value(
        "note:{id}",
        Note,
        lifetime=after("7d"),
        owns="reads",
        doc="a note; whoever knows its id can read it",
    )
'''

_OPERATIONS: Final = '''

def write_note(keys: AppKeys, note: Note) -> str:
    """Keep a note for a week, and return its id."""
    note_id = secrets.token_urlsafe(8)
    keys.note(note_id).set(note).wait()
    return note_id


def read_note(keys: AppKeys, note_id: str) -> tuple[Note, int] | None:
    """The note and how often it was read, or None if there is none, or no longer."""
    note = keys.note(note_id).get().wait()
    if note is None:
        return None
    return note, keys.reads(note_id).increment().wait()
'''

_FASTAPI: Final = '''"""Notes over HTTP. Run it with: python -m granian --interface asgi app:app"""

import os
import secrets

from fastapi import FastAPI, HTTPException
from keystead import connect

from keys import AppKeys, Note
%OPERATIONS%

STORE = os.environ.get(
    "KEYSTEAD_STORE",
    %STORE%,
)

app = FastAPI(title=%TITLE%)
keys = AppKeys(connect(STORE))


@app.get("/")
def index() -> dict[str, str]:
    return {"try it at": "/docs"}


@app.post("/notes")
def post_note(note: Note) -> dict[str, str]:
    return {"id": write_note(keys, note)}


@app.get("/notes/{note_id}")
def get_note(note_id: str) -> dict[str, str | int]:
    found = read_note(keys, note_id)
    if found is None:
        raise HTTPException(404, "There is no such note, or no longer.")
    note, reads = found
    return {"author": note.author, "text": note.text, "reads": reads}
'''

_SCRIPT: Final = '''"""Notes on the command line. Run it with: python app.py"""

import os
import secrets
import sys

from keystead import connect

from keys import AppKeys, Note
%OPERATIONS%

STORE = os.environ.get(
    "KEYSTEAD_STORE",
    %STORE%,
)


def main() -> None:
    keys = AppKeys(connect(STORE))
    text = " ".join(sys.argv[1:]) or "Hello"
    note_id = write_note(keys, Note(author=os.environ.get("USER", "me"), text=text))
    print(f"wrote note {note_id}: {read_note(keys, note_id)}")


if __name__ == "__main__":
    main()
'''

_TEST: Final = '''"""Tests run on a store in memory: no server, no clean-up. Run them with: python -m pytest"""

from keystead import connect

from app import read_note, write_note
from keys import AppKeys, Note


def test_a_note_is_read_and_its_reads_are_counted() -> None:
    keys = AppKeys(connect("memory://"))
    note = Note(author="Ada", text="Hello")
    note_id = write_note(keys, note)
    assert read_note(keys, note_id) == (note, 1)
    assert read_note(keys, note_id) == (note, 2)


def test_an_unknown_note_is_none() -> None:
    assert read_note(AppKeys(connect("memory://")), "unknown") is None
'''

_CONFIG: Final = """# Settings of the keystead commands in this folder. Secrets do not belong here.
store = %STORE%
"""

_README: Final = """# %NAME%

`keys.py` declares the keys, `app.py` uses them, `test_app.py` tests both.

```sh
pip install %PACKAGES%
%RUN%
python -m pytest
```

The keys:

```sh
keystead check keys      # errors in the declarations
keystead show -k keys    # what is stored, by family
keystead doctor keys     # defects in the stored data
keystead docs keys       # the key document
```

`KEYSTEAD_STORE` names another store, such as `redis://localhost:6379/0`.
"""

_IGNORED: Final = """__pycache__/
.pytest_cache/
.ruff_cache/
.venv/
*.db
*.db-shm
*.db-wal
keystead.secrets.toml
"""


# The extra with the driver, by the beginning of the URL of the store.
_DRIVERS: Final = {
    "redis": "redis",
    "valkey": "redis",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "cloudflare": "cloudflare",
}


def fit(store: Store) -> None:
    """Raises DoesNotFit, with the reason, if the keys of the project do not fit the store."""
    names: dict[str, Any] = {"__name__": "keys"}
    exec(_KEYS, names)  # noqa: S102 - the text above
    names["AppKeys"](store)


def project_files(name: str, is_web: bool, store: str) -> dict[str, str]:
    """The text of each file of a project, by its name."""
    driver = next((extra for scheme, extra in _DRIVERS.items() if store.startswith(scheme)), "")
    extras = f"[{'server' if is_web else 'cli'}{driver and ','}{driver}]"
    values = {
        "%OPERATIONS%": _OPERATIONS,
        "%TITLE%": json.dumps(name, ensure_ascii=False),
        "%NAME%": name,
        "%STORE%": json.dumps(store),
        "%PACKAGES%": f'"keystead{extras}" pytest',
        "%RUN%": "python -m granian --interface asgi app:app" if is_web else "python app.py",
    }
    templates = {
        "keys.py": _KEYS,
        "app.py": _FASTAPI if is_web else _SCRIPT,
        "test_app.py": _TEST,
        "keystead.toml": _CONFIG,
        "README.md": _README,
        ".gitignore": _IGNORED,
    }
    return {file: _fill(text, values) for file, text in templates.items()}


def _fill(text: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
