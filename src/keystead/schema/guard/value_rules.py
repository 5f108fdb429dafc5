"""Values that do not fit their family, and lists and logs that grow beyond what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from keystead.errors import BadValue
from keystead.schema.chunked_reading import read, read_entry, read_hash
from keystead.schema.codec import Codec
from keystead.schema.doctor.contents import find_old_form
from keystead.schema.doctor.family_facts import Facts
from keystead.schema.doctor.key_state import KeyState, is_model
from keystead.schema.guard.write_problem import Condition, Write, WriteProblem, exists
from keystead.stores import Call, Command, at_most

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const")


class ValueRules:
    """The rules of one family."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._bound = facts.bound
        self._family = facts.bound.family
        self._is_model = is_model(facts.bound)
        self._required: frozenset[bytes] = frozenset()
        self._is_checked_whole = False
        if self._is_model:
            fields = self._family.type.model_fields
            self._required = frozenset(
                self._family.stored_name(name).encode() for name, info in fields.items() if info.is_required()
            )
            self._is_checked_whole = bool(self._family.type.__pydantic_decorators__.model_validators)

    def check(self, write: Write) -> Iterator[WriteProblem]:
        """What is wrong with the values of this write. Sets `write.value` if the write determines it."""
        rule = _RULES.get(write.name)
        if rule is not None:
            yield from rule(self, write)

    # --- single values -------------------------------------------------------------------------------------

    def _check_set(self, write: Write) -> Iterator[WriteProblem]:
        data = write.call.args[1]
        look = KeyState(*write.member, write.now_ms, 0, data)
        self._facts.read(look)
        write.value = look.value
        if look.problem is not None:
            yield WriteProblem("unreadable", look.problem)
        elif self._facts.may_be_old and (old := find_old_form(look)) is not None:
            yield WriteProblem(old.code, old.sentence)

    def _check_amount(self, write: Write) -> Iterator[WriteProblem]:
        if not self._facts.is_counter and not _takes_any_integer(self._family.codecs["value"]):
            yield WriteProblem(
                "unreadable", f"it would become a number, but the family holds {self._family.value_shape}"
            )

    # --- hashes --------------------------------------------------------------------------------------------

    def _check_fields(self, write: Write) -> Iterator[WriteProblem]:
        args = write.call.args
        pairs = dict(zip(args[1::2], args[2::2], strict=True))
        if not self._is_model:
            yield from self._check_entries(write, list(pairs.items()))
            return
        for field, data in pairs.items():
            codec = self._family.fields.get(field.decode("utf-8", "replace"))
            if codec is None:
                yield WriteProblem("unreadable", f"{self._family.type.__name__} has no field {_shown(field)}")
                return
            problem = read(codec, data, self._bound, write.key, field.decode())[1]
            if problem is not None:
                yield WriteProblem("unreadable", f"{_shown(field)}: {problem}")
                return
        if pairs.keys() >= self._required:
            value, problem = read_hash(self._bound, write.key, pairs)
            write.value = value
            if problem is not None:
                yield WriteProblem("unreadable", problem)
        yield from self._check_partial(write, frozenset(pairs))

    def _check_partial(self, write: Write, given: frozenset[bytes]) -> Iterator[WriteProblem]:
        """Some fields of a record: fine if the record exists, and no rule spans several fields."""
        if self._is_checked_whole and len(given) < len(self._family.fields):
            yield WriteProblem(
                "unreadable",
                f"{self._family.type.__name__} has rules about several fields; write all fields in one command",
            )
        missing = sorted(field.decode() for field in self._required - given)
        if missing:
            yield WriteProblem("unreadable", f"a new record also needs {', '.join(missing)}", exists(write.key))

    def _check_field_amount(self, write: Write) -> Iterator[WriteProblem]:
        field = write.call.args[1]
        name = field.decode("utf-8", "replace")
        codec = self._family.fields.get(name) if self._is_model else self._family.codecs["value"]
        if codec is None or not _takes_any_integer(codec):
            yield WriteProblem("unreadable", f"{_shown(field)} cannot be incremented in {self._family.value_shape}")
        elif self._is_model:
            yield from self._check_partial(write, frozenset({field}))
        else:
            yield from self._check_entries(write, [(field, b"1")])

    def _check_removed_fields(self, write: Write) -> Iterator[WriteProblem]:
        if not self._is_model:
            return
        if self._is_checked_whole:
            yield WriteProblem(
                "unreadable", f"{self._family.type.__name__} has rules about several fields; delete it whole"
            )
        for field in write.call.args[1:]:
            try:
                self._family.refuse_required(field, write.key)
            except BadValue:
                yield WriteProblem("unreadable", f"{_shown(field)} is required; delete the record instead")

    # --- other collections ---------------------------------------------------------------------------------

    def _check_entries(self, write: Write, entries: list[Any]) -> Iterator[WriteProblem]:
        for entry in entries:
            problem = read_entry(self._bound, write.key, entry)[1]
            if problem is not None:
                yield WriteProblem("unreadable", f"an entry does not fit: {problem}")
                return

    def _check_members(self, write: Write) -> Iterator[WriteProblem]:
        return self._check_entries(write, list(write.call.args[1:]))

    def _check_scores(self, write: Write) -> Iterator[WriteProblem]:
        return self._check_entries(write, [[member, score] for member, score in write.call.options.pairs])

    def _check_item(self, write: Write) -> Iterator[WriteProblem]:
        return self._check_entries(write, [write.call.args[2]])

    def _check_push(self, write: Write) -> Iterator[WriteProblem]:
        key, items = write.key, write.call.args[1:]
        yield from self._check_entries(write, list(items))
        keep = self._facts.keeps
        if keep is not None:
            trim = ("LTRIM", key, 0, keep - 1) if write.name == "LPUSH" else ("LTRIM", key, -keep, -1)
            yield self._too_long("LLEN", key, keep, len(items), trim)

    def _check_entry(self, write: Write) -> Iterator[WriteProblem]:
        options = write.call.options
        yield from self._check_entries(write, [(b"", options.fields)])
        keep = self._facts.keeps
        is_exact = options.max_len is not None and b"~" not in write.call.args[:3]
        if keep is not None and not (is_exact and options.max_len <= keep):
            yield self._too_long("XLEN", write.key, keep, 1, ("XTRIM", write.key, "MAXLEN", "=", keep))

    def _too_long(self, size: str, key: str, keep: int, more: int, trim: Command) -> WriteProblem:
        look: Command = (size, key)
        condition = Condition([at_most(look, keep - more)], look, lambda reply: reply > keep - more)
        return WriteProblem(
            "too-long",
            f"it would have more than {keep:,} entries; trim it in the same transaction",
            condition if more <= keep else None,
            [trim],
            cure=lambda call: _trims(call, key.encode(), keep),
        )


_RULES: dict[str, Callable[[ValueRules, Write], Iterator[WriteProblem]]] = {
    "SET": ValueRules._check_set,
    "INCRBY": ValueRules._check_amount,
    "DECRBY": ValueRules._check_amount,
    "HSET": ValueRules._check_fields,
    "HSETNX": ValueRules._check_fields,
    "HINCRBY": ValueRules._check_field_amount,
    "HDEL": ValueRules._check_removed_fields,
    "SADD": ValueRules._check_members,
    "ZADD": ValueRules._check_scores,
    "LPUSH": ValueRules._check_push,
    "RPUSH": ValueRules._check_push,
    "LSET": ValueRules._check_item,
    "XADD": ValueRules._check_entry,
}


def _trims(call: Call, key: bytes, keep: int) -> bool:
    """Whether this command leaves at most so many entries of the list or log."""
    if call.spec.name == "XTRIM" and call.args[0] == key:
        return bool(call.options <= keep) and b"~" not in call.args
    if call.spec.name != "LTRIM" or call.args[0] != key:
        return False
    start, stop = call.options
    return bool((start < 0) == (stop < 0) and stop - start < keep)


def _takes_any_integer(codec: Codec[Any]) -> bool:
    schema = codec.json_schema()
    return not codec.sealed and schema.get("type") == "integer" and not any(bound in schema for bound in _BOUNDS)


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("utf-8", "replace"))
