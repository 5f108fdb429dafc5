"""Every error that Keystead raises: a message that a person can act on, and a stable code for programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal


class KeysteadError(Exception):
    """The base class of all Keystead errors. `code` never changes between releases; the message may.

    `results` is set by `Keyspace.run`: the result of each operation, with an error in place of each failure.
    """

    code: ClassVar[str] = "keystead"
    results: list[Any] | None = None
    latest: ClassVar[Callable[[], KeysteadError | None]] = lambda: None  # None once it has been garbage-collected

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        KeysteadError.latest = weakref.ref(self)


class BadUrl(KeysteadError):
    """A store URL that cannot be parsed."""

    code = "bad-url"


class MissingExtra(KeysteadError, ImportError):
    """A feature needs packages that are not installed. The message includes the command that installs them."""

    code = "missing-extra"


class BadDeclaration(KeysteadError):
    """A family or keyspace with an invalid declaration. It is raised when the declaring module is imported.

    `finding` is its code in `keystead check`.
    """

    code = "bad-declaration"

    def __init__(self, sentence: str, finding: str = "bad-declaration") -> None:
        super().__init__(sentence)
        self.finding = finding


class BadKey(KeysteadError):
    """A key that its family cannot produce: a placeholder is missing, unknown, or has a value that does not fit.

    It is raised before anything is sent.
    """

    code = "bad-key"


class KeyTooLong(BadKey):
    """A key that is too long for its store. Nothing was truncated and nothing was sent."""

    code = "key-too-long"


class BadValue(KeysteadError):
    """A value, member, field or deadline that does not fit its family. It is raised before anything is sent."""

    code = "bad-value"


class BadCall(BadKey, BadValue):
    """A verb or a family was called with the wrong arguments: a bug in the program, not bad user input.

    Servers respond to other key and value errors with 400, and to this one with 500.
    """

    code = "bad-call"


class Unreadable(KeysteadError):
    """The stored value of a key does not match its family: invalid bytes, another version, another seal, another kind
    (`WrongKind`), not a number (`StoredNotANumber`).

    A read leaves the data as it is: `keystead doctor` finds such keys, and `keystead doctor --fix` sets them aside. A
    consume or a pop has removed it by then; `taken` holds the raw reply, so that nothing is lost. `family` names the
    family, as in `AppKeys.token`, once the schema has logged it.
    """

    code = "unreadable"
    taken: Any = None
    raw: bytes | None = None
    key: str | bytes | None = None
    family: str = ""
    unopened: bool = False
    """Whether a sealed text in it does not open with the current keys."""

    def __init__(self, sentence: str, key: str | bytes | None = None, raw: bytes | None = None) -> None:
        super().__init__(sentence if key is None else f"{printable(key)}: {sentence}")
        self.key = key
        self.raw = raw


class WrongSealKey(KeysteadError):
    """No sealed value of a family opens: they were sealed with other keys.

    `families` maps each such family to its number of values. Nothing was repaired.
    """

    code = "wrong-seal-key"

    def __init__(self, families: dict[str, int]) -> None:
        counts = ", ".join(f"{count:,} of {family}" for family, count in families.items())
        super().__init__(
            f"no sealed value opens ({counts}), so the keys are probably wrong, and nothing was repaired; use the keys "
            "that the application seals with: KEYSTEAD_SEAL_KEYS, seal_keys in the secrets file, or seal=KeyRing(...). "
            "If the values themselves are damaged, delete them"
        )
        self.families = families


class CapReached(KeysteadError):
    """A user has as many sessions as the policy allows, and the policy refuses more."""

    code = "cap-reached"


class Contended(KeysteadError):
    """A change was retried several times and lost every race (optimistic locking). Nothing was changed; try again."""

    code = "contended"


class DoesNotFit(KeysteadError):
    """A family needs a guarantee that the store of its role does not offer."""

    code = "does-not-fit"


class StoreClosed(KeysteadError):
    """The store was used before it was opened or after it was closed: a bug in the program, not an outage."""

    code = "store-closed"


class WrongEventLoop(KeysteadError):
    """The store was opened in another event loop, such as by an earlier `asyncio.run` or in another thread.

    A store works only in the loop it was opened in: open one for each loop, and close it before the loop ends.
    """

    code = "wrong-event-loop"


class StoreError(KeysteadError):
    """A store cannot run a command or a batch.

    `replies` is set by `Store.run`: the replies of the whole batch in order, with an error in place of each command
    that failed, so that the commands that worked keep their replies.
    """

    code = "store"
    replies: list[Any] | None = None


class StoreUnavailable(StoreError):
    """The store did not answer in time, or cannot be reached.

    `outcome` is `"not-sent"` if none of the commands took effect and a retry is safe, or `"unknown"` if the reply was
    lost and they may have taken effect.
    """

    code = "store-unavailable"

    def __init__(self, sentence: str, outcome: Literal["not-sent", "unknown"] = "not-sent") -> None:
        super().__init__(sentence)
        self.outcome = outcome


class StoreReadOnly(StoreError):
    """The store cannot be written to: a replica, a read-only user, a read-only file."""

    code = "store-read-only"


class StoreRefused(StoreError):
    """The store rejects this user, or does not permit the operation."""

    code = "store-refused"


class StoreFull(StoreError):
    """The store has no space left. Existing data is untouched."""

    code = "store-full"


class StoreDamaged(StoreError):
    """The file is not a Keystead database, or is damaged. Nothing in it was changed."""

    code = "store-damaged"


class CommandError(StoreError):
    """A store rejects one command, which had no effect."""

    code = "command"
    key: str | bytes | None

    def __init__(self, sentence: str, command: str = "", key: bytes | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.command = command
        self.key = key

    def __str__(self) -> str:
        where = self.command if self.key is None else f"{self.command} {printable(self.key)}"
        return f"{where}: {self.sentence}" if where else self.sentence


class UnknownCommand(CommandError):
    """The command does not exist, or this store does not support it."""

    code = "unknown-command"


class EngineError(CommandError):
    """The engine's own error reply to a command outside the language (`Store.run_foreign`), in its own words."""

    code = "engine"


class WriteRefused(CommandError):
    """A write that contradicts the declaration of its family, on a store with a write guard. It had no effect.

    `finding` is the code of the finding that the doctor would report: see docs/reference/findings.md.
    """

    code = "write-refused"
    finding = ""


class WrongArity(CommandError):
    """A command with too few or too many arguments."""

    code = "wrong-arity"


class BadOption(CommandError):
    """An option that the command does not have, or that conflicts with another."""

    code = "bad-option"


class BadArgument(CommandError):
    """An argument of the wrong type, or one that is invalid in its place."""

    code = "bad-argument"


class NotANumber(CommandError):
    """An argument or a stored value is not a valid number, or the result would not be one."""

    code = "not-a-number"


class StoredNotANumber(NotANumber, Unreadable):
    """A stored value is not a valid number."""


class BadLifetime(CommandError):
    """A lifetime of zero or less, or one that ends after the year 9999."""

    code = "bad-lifetime"


class WrongKind(CommandError, Unreadable):
    """The key holds another kind of value than the command works on (Redis's WRONGTYPE)."""

    code = "wrong-kind"


class CrossSlot(CommandError):
    """The keys of an atomic step are in different cluster slots, or too many for the store."""

    code = "cross-slot"


def is_refusing() -> bool:
    """Whether the latest error rejects a key, a value or an argument, and is still being raised or handled."""
    return isinstance(KeysteadError.latest(), BadKey | BadValue | BadArgument)


def printable(key: str | bytes) -> str:
    """A key in readable form, on one line, whatever its bytes."""
    text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
    readable = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return readable if len(readable) <= 200 else f"{readable[:200]}… ({len(key)} in all)"
