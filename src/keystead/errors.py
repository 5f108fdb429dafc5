"""Every error that Keystead raises: a sentence a person can act on, and a stable code a program can act on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal


class KeysteadError(Exception):
    """The root of all errors of Keystead. `code` never changes between releases; the sentence may.

    `results` is set by `Keyspace.run`: the result of each operation, an error in the place of each that failed.
    """

    code: ClassVar[str] = "keystead"
    results: list[Any] | None = None
    latest: ClassVar[Callable[[], KeysteadError | None]] = lambda: None  # while somebody still has it

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        KeysteadError.latest = weakref.ref(self)


class BadUrl(KeysteadError):
    """A store URL that cannot be understood."""

    code = "bad-url"


class MissingExtra(KeysteadError, ImportError):
    """What was asked for needs packages that are not installed. The sentence has the command that installs them."""

    code = "missing-extra"


class BadDeclaration(KeysteadError):
    """A family or keyspace that is declared wrongly. It is raised where the module that declares it is imported.

    `finding` is the code under which `keystead check` shows it.
    """

    code = "bad-declaration"

    def __init__(self, sentence: str, finding: str = "bad-declaration") -> None:
        super().__init__(sentence)
        self.finding = finding


class BadKey(KeysteadError):
    """A key that its family cannot make: a placeholder is missing, unknown, or has a value that does not fit it.

    It is raised before anything is sent.
    """

    code = "bad-key"


class KeyTooLong(BadKey):
    """A key longer than its store can keep. Nothing was cut and nothing was sent."""

    code = "key-too-long"


class BadValue(KeysteadError):
    """A value, member, field or deadline that does not fit its family. It is raised before anything is sent."""

    code = "bad-value"


class BadCall(BadKey, BadValue):
    """A verb or a family that was called in a way it does not have: a fault of the program, whatever its users send.

    A server answers other errors of a key or a value with 400, and this one with 500.
    """

    code = "bad-call"


class Unreadable(KeysteadError):
    """What the store holds under a key is not what its family says: other bytes, another version, another seal, another
    kind (`WrongKind`), no number (`StoredNotANumber`).

    A read leaves the data as it is: `keystead doctor` finds such keys, and `keystead doctor --fix` sets them aside. A
    consume or a pop has taken it out by then; `taken` holds the whole reply as it was stored, so that nothing is lost.
    `family` names the family, as in `AppKeys.token`, once the schema has logged it.
    """

    code = "unreadable"
    taken: Any = None
    raw: bytes | None = None
    key: str | bytes | None = None
    family: str = ""
    unopened: bool = False
    """Whether a sealed text in it does not open with the keys that there are."""

    def __init__(self, sentence: str, key: str | bytes | None = None, raw: bytes | None = None) -> None:
        super().__init__(sentence if key is None else f"{shown(key)}: {sentence}")
        self.key = key
        self.raw = raw


class WrongSealKey(KeysteadError):
    """None of the sealed values of a family opens: the keys that were given are others than those that sealed them.

    `families` says how many values each of these families has. Nothing was repaired.
    """

    code = "wrong-seal-key"

    def __init__(self, families: dict[str, int]) -> None:
        said = ", ".join(f"{count:,} of {family}" for family, count in families.items())
        super().__init__(
            f"not one sealed value opens ({said}), so the keys are wrong and not the values, and nothing was repaired; "
            "give the keys that the application seals with: KEYSTEAD_SEAL_KEYS, seal_keys in the secrets file, or "
            "seal=KeyRing(...). If the values themselves are damaged, delete them"
        )
        self.families = families


class CapReached(KeysteadError):
    """A user has as many sessions as the policy allows, and it says that a further login is refused."""

    code = "cap-reached"


class Contended(KeysteadError):
    """A change was tried again and again, and each time somebody else was faster. Nothing was changed; try again."""

    code = "contended"


class DoesNotFit(KeysteadError):
    """A family needs what the store of its role cannot promise."""

    code = "does-not-fit"


class StoreClosed(KeysteadError):
    """The store was used before it was opened or after it was closed: a fault of the program, not of the store."""

    code = "store-closed"


class WrongEventLoop(KeysteadError):
    """The store was opened in another event loop, as by an earlier `asyncio.run` or in another thread.

    A store works only in the loop it was opened in: open one for each loop, and close it before the loop ends.
    """

    code = "wrong-event-loop"


class StoreError(KeysteadError):
    """What a store answers when it cannot do what was asked.

    `replies` is set by `Store.run`: the replies of the whole batch in order, with an error in the place of
    each command that failed, so that the commands that worked keep their replies.
    """

    code = "store"
    replies: list[Any] | None = None


class StoreUnavailable(StoreError):
    """The store did not answer in time, or cannot be reached.

    `outcome` says what is known of the commands: `"not-sent"` means that none of them took effect and that
    asking again is safe; `"unknown"` means that the reply was lost and that they may have taken effect.
    """

    code = "store-unavailable"

    def __init__(self, sentence: str, outcome: Literal["not-sent", "unknown"] = "not-sent") -> None:
        super().__init__(sentence)
        self.outcome = outcome


class StoreReadOnly(StoreError):
    """The store cannot be written to: a replica, a read-only user, a read-only file."""

    code = "store-read-only"


class StoreRefused(StoreError):
    """The store does not let this user in, or does not let it do this."""

    code = "store-refused"


class StoreFull(StoreError):
    """The store has no room left. What was there is untouched."""

    code = "store-full"


class StoreDamaged(StoreError):
    """The file is not a Keystead database, or is damaged. Nothing in it was changed."""

    code = "store-damaged"


class CommandError(StoreError):
    """One command that a store will not run. It had no effect."""

    code = "command"
    key: str | bytes | None

    def __init__(self, sentence: str, command: str = "", key: bytes | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.command = command
        self.key = key

    def __str__(self) -> str:
        where = self.command if self.key is None else f"{self.command} {shown(self.key)}"
        return f"{where}: {self.sentence}" if where else self.sentence


class UnknownCommand(CommandError):
    """There is no such command here."""

    code = "unknown-command"


class WrongArity(CommandError):
    """A command with too few or too many arguments."""

    code = "wrong-arity"


class BadOption(CommandError):
    """An option that the command does not have, or that excludes another."""

    code = "bad-option"


class BadArgument(CommandError):
    """An argument of the wrong type, or one that makes no sense where it stands."""

    code = "bad-argument"


class NotANumber(CommandError):
    """An argument or a stored value is not the number it has to be, or the result would not be one."""

    code = "not-a-number"


class StoredNotANumber(NotANumber, Unreadable):
    """What is stored there is not the number it has to be."""


class BadLifetime(CommandError):
    """A lifetime of zero or less, or one that ends after the year 9999."""

    code = "bad-lifetime"


class WrongKind(CommandError, Unreadable):
    """The key holds another kind of value than the command works on (Redis's WRONGTYPE)."""

    code = "wrong-kind"


class CrossSlot(CommandError):
    """The keys of one atomic step live in different slots of a cluster, or are more than the store takes in one."""

    code = "cross-slot"


def is_refusing() -> bool:
    """Whether a key, a value or an argument was refused, and the error is on its way or being handled."""
    return isinstance(KeysteadError.latest(), BadKey | BadValue | BadArgument)


def shown(key: str | bytes) -> str:
    """A key as a person can read it, on one line, whatever it holds."""
    text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
    readable = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return readable if len(readable) <= 200 else f"{readable[:200]}… ({len(key)} in all)"
