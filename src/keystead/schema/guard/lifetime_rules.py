"""Writes that leave a key without the deadline that its family states, or with another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keystead.errors import BadCall, BadValue
from keystead.schema.chunked_reading import UNKNOWN
from keystead.schema.doctor.deadlines import WrongDeadline
from keystead.schema.doctor.family_facts import Facts
from keystead.schema.doctor.key_state import KeyState
from keystead.schema.guard.write_problem import Cure, Write, WriteProblem, exists
from keystead.schema.key import moment
from keystead.schema.kinds import Value
from keystead.schema.lifetime import Until
from keystead.stores import Call, Command
from keystead.stores.commands import Deadline, SetOptions

# Commands that create a key if there is none, without a deadline.
_GROWING = frozenset(("INCRBY", "DECRBY", "HSET", "HSETNX", "HINCRBY", "SADD", "ZADD", "LPUSH", "RPUSH", "XADD"))
_EXPIRING = frozenset(("EXPIRE", "PEXPIRE", "PEXPIREAT"))


class LifetimeRules:
    """The rules of one family. `corrects`: whether corrections are needed."""

    def __init__(self, facts: Facts, *, corrects: bool) -> None:
        self._corrects = corrects
        self._facts = facts
        self._family = facts.bound.family
        self._lifetime = facts.bound.family.lifetime
        self.no_deadline = f"it would have no deadline, but the family states: {self._lifetime.describe()}"
        # The deadline of a Value with `until` follows from its content.
        self._is_in_value = (
            isinstance(self._family, Value) and isinstance(self._lifetime, Until) and not self._family.takes_deadline
        )

    def check(self, write: Write) -> Iterator[WriteProblem]:
        name = write.name
        if write.deletes:
            return
        if name == "SET":
            yield from self._check_set(write)
        elif name in _GROWING:
            yield from self._check_growth(write)
        elif name in _EXPIRING:
            yield from self._check_new_deadline(write, write.call.options.deadline)
        elif name == "GETEX":
            if write.call.options.deadline is not None:
                yield from self._check_new_deadline(write, write.call.options.deadline)
            elif write.call.options.persist:
                yield from self._check_removal(write)
        elif name == "PERSIST":
            yield from self._check_removal(write)

    # --- values ----------------------------------------------------------------------------------------------

    def _check_set(self, write: Write) -> Iterator[WriteProblem]:
        options: SetOptions = write.call.options
        if options.keep_ttl and not self._is_in_value:
            if self._lifetime.ends and options.only_if == b"NX":
                yield self._missing(write, instead=self._corrected(write))
            elif self._lifetime.ends and options.only_if != b"XX":
                yield self._missing(write, needs_key=True, fixes=self._fixes(write))
            return
        left_ms = -1 if options.deadline is None else options.deadline.at_ms(write.now_ms) - write.now_ms
        yield from self._judge(write, left_ms)

    def _corrected(self, write: Write) -> Command | None:
        """The same SET with the declared lifetime; None: only the caller knows it."""
        options: SetOptions = write.call.options
        if not self._corrects:
            return None
        try:
            at_ms = self._moment(write)
            lifetime = self._lifetime.on_create(write.now_ms, at_ms)
        except (BadCall, BadValue):
            return None
        rest = [*([options.only_if] if options.only_if else []), *(["GET"] if options.get else [])]
        return ("SET", write.key, write.call.args[1], *lifetime, *rest)

    # --- keys that grow --------------------------------------------------------------------------------------

    def _check_growth(self, write: Write) -> Iterator[WriteProblem]:
        """They keep the deadline of an existing key; a new key would have none."""
        never_creates = write.name == "ZADD" and b"XX" in write.call.options.flags
        if self._lifetime.ends and not never_creates:
            yield self._missing(write, needs_key=True, fixes=self._fixes(write))

    def _fixes(self, write: Write) -> list[Command]:
        if not self._corrects:
            return []
        try:
            commands: list[Command] = self._lifetime.on_write(write.key, write.now_ms, self._moment(write))
        except (BadCall, BadValue):
            return []
        return commands

    def _moment(self, write: Write) -> int | None:
        return moment(self._family, write.key, None if write.value is UNKNOWN else write.value, {})

    # --- deadlines alone -------------------------------------------------------------------------------------

    def _check_new_deadline(self, write: Write, deadline: Deadline) -> Iterator[WriteProblem]:
        left_ms = deadline.at_ms(write.now_ms) - write.now_ms
        if self._is_in_value:
            field = self._lifetime.field
            yield WriteProblem(
                "early-deadline", f"its deadline follows from {field} in its value; write the value instead"
            )
            return
        yield from self._judge(write, left_ms)

    def _check_removal(self, write: Write) -> Iterator[WriteProblem]:
        if self._lifetime.ends:
            yield self._missing(write, fixes=self._fixes(write))

    # --- all of them -----------------------------------------------------------------------------------------

    def _judge(self, write: Write, left_ms: int) -> Iterator[WriteProblem]:
        """Judge a key that will have so long to live, as the doctor does."""
        look = KeyState(*write.member, write.now_ms, left_ms, value=write.value)
        code = self._facts.wrong_deadline(look)
        if code is None:
            return
        sentence = WrongDeadline(look, code).sentence.replace("it has", "it would have", 1)
        if write.name == "SET":
            yield WriteProblem(code, sentence, instead=self._corrected(write), cure=self._expires(write, left_ms < 0))
        else:
            yield WriteProblem(code, sentence, fixes=[self._lifetime.repair(write.key, write.now_ms, None)])

    def _missing(
        self, write: Write, *, needs_key: bool = False, fixes: Sequence[Command] = (), instead: Command | None = None
    ) -> WriteProblem:
        return WriteProblem(
            "no-deadline",
            self.no_deadline,
            exists(write.key) if needs_key else None,
            fixes,
            instead,
            cure=self._expires(write, has_none=True),
        )

    def _expires(self, write: Write, has_none: bool) -> Cure:
        """Whether another command of the batch sets its deadline. That deadline is judged by itself."""
        key, conditions = write.call.args[0], {b"NX"} if has_none else set()

        def cures(call: Call) -> bool:
            if call.spec.name not in _EXPIRING or call.args[0] != key:
                return False
            return call.options.conditions <= conditions and not self._is_in_value

        return cures
