"""The secrets file: created if missing, readable only by its owner."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keystead.schema import KeyRing

if TYPE_CHECKING:
    from keystead.parts.jwt import Algorithm

_MODE: Final = 0o600
_HEAD: Final = """\
# Created by `keystead serve`. This key opens the sealed values in the store, which cannot be opened without it:
# keep it private, out of version control, and with your backups.
"""


def new_seal_key() -> str:
    """A new key with a new id, in the format of `seal_keys`: `20261231-5f0c:{base64url}`."""
    return f"{_new_id()}:{KeyRing.new_key()}"


def new_signing_key(algorithm: Algorithm) -> str:
    """A new key with a new id, in the format of `SigningKeys.from_text`: `20261231-5f0c:EdDSA:{base64url}`."""
    from keystead.parts.jwt import SigningKeys  # imported here: every command reads settings, and few sign

    return f"{_new_id()}:{SigningKeys.new_key(algorithm)}"


def _new_id() -> str:
    return f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(2)}"


def add_seal_key(path: Path) -> bool:
    """Add a sealing key to the file if it has none. Returns whether it was added.

    The write is atomic: if several processes start at once, one adds the key, and the others find it. Other content of
    the file stays. Raises OSError if it cannot be written.
    """
    if not path.exists() and _create(path):
        return True
    with _lock_and_read(path) as held:
        if "seal_keys" in tomllib.loads(held):
            return False
        _write_temporary(path, _seal_line() + held).replace(path)
        return True


def read_secrets(path: Path) -> tuple[str, str]:
    """The text of the file, and a sentence on who else can read or change it; "" if only we (or root) can.

    Both describe the same file, even if it is replaced meanwhile. Raises OSError and UnicodeDecodeError.
    """
    with path.open(encoding="utf-8") as file:
        return file.read(), _exposure(path, os.fstat(file.fileno()))


def _exposure(path: Path, found: os.stat_result) -> str:
    if os.name != "posix":
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user (uid {found.st_uid}), who could replace the keys; run chown"
    if found.st_mode & 0o077:
        return f"others can read {path}; run chmod 600 {path}"
    return ""


def _seal_line() -> str:
    return f'seal_keys = "{new_seal_key()}"\n'


def _create(path: Path) -> bool:
    """Create the file under a temporary name and link it to its own: only the first of several processes succeeds."""
    temporary = _write_temporary(path, _HEAD + _seal_line())
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _write_temporary(path: Path, text: str) -> Path:
    """Write a private temporary file with this text beside the path, synced to disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


@contextmanager
def _lock_and_read(path: Path) -> Iterator[str]:
    """The text of the file, under an exclusive lock."""
    while True:
        with path.open(encoding="utf-8") as file:
            _lock(file.fileno())
            if os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                continue  # replaced while this waited for the lock
            yield file.read()
            return


def _lock(descriptor: int) -> None:
    """Lock until the file is closed. Windows has no such locks, so two concurrent starts may race there."""
    with suppress(ImportError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
