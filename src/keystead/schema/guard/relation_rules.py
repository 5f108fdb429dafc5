"""Writes that break a relation: a record without its index entry, an entry without its record, a key without its owner.

A client keeps relations by writing both sides in one transaction. What another key must hold is checked in the same
atomic step, after all writes of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nextafter

from keystead.errors import BadKey, BadValue
from keystead.schema import listing
from keystead.schema.chunked_reading import UNKNOWN, read_entry
from keystead.schema.doctor.deadlines import CLOCKS_MS
from keystead.schema.doctor.family_facts import Facts, entry_of
from keystead.schema.doctor.key_state import KeyState
from keystead.schema.doctor.relation_checks import existence_command, score_of, target
from keystead.schema.guard.write_problem import Condition, Write, WriteProblem, exists
from keystead.schema.key import moment
from keystead.schema.relation import Relation
from keystead.stores import Call, Command, Reply, Step, absent, at_most, more_than, required

_CREATING = frozenset(
    ("SET", "INCRBY", "DECRBY", "HSET", "HSETNX", "HINCRBY", "SADD", "ZADD", "LPUSH", "RPUSH", "XADD")
)
_ADDING = frozenset(("SADD", "ZADD"))
_EXPIRING = frozenset(("EXPIRE", "PEXPIRE", "PEXPIREAT"))
_TAKING = frozenset(("ZREMRANGEBYSCORE", "ZREMRANGEBYRANK", "ZPOPMIN"))


class RelationRules:
    """The rules of one family."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._family = facts.bound.family
        self.is_needed = bool(facts.owners or facts.leads_to or facts.listed or facts.is_index or self._family.owns)

    def check(self, write: Write) -> Iterator[WriteProblem]:
        if write.deletes:
            yield from self._check_deletion(write)
        elif write.name in _CREATING:
            yield from self._check_owner(write)
            if self._facts.is_record:
                yield from self._check_record(write)
        if self._facts.is_index:
            yield from self._check_index(write)

    def _check_owner(self, write: Write) -> Iterator[WriteProblem]:
        owners = [key for _, key in self._facts.owner_keys(write.member.values)]
        if owners:
            yield WriteProblem("orphan", "the key that owns it does not exist", exists(*owners, is_after=True))

    # --- records ---------------------------------------------------------------------------------------------

    def _check_record(self, write: Write) -> Iterator[WriteProblem]:
        look = KeyState(*write.member, write.now_ms, 0, value=write.value)
        for relation in self._facts.leads_to:
            if write.value is UNKNOWN and self._touches(write, relation):
                yield WriteProblem("leads-nowhere", "only a write of the whole record shows where it leads")
            elif (led := target(look, relation)) is not None:
                yield WriteProblem(
                    "leads-nowhere", "it leads to a key that does not exist", exists(led.key, is_after=True)
                )
        for listed in self._facts.listed:
            entry = entry_of(look, listed)
            if entry is None:
                if write.value is not UNKNOWN or self._touches(write, listed.relation):
                    yield WriteProblem("not-listed", f"its entry in {listed.index.family.place} cannot be determined")
                continue
            score = score_of(look, entry) if listed.has_score and write.value is not UNKNOWN else None
            yield _not_listed(write, entry, score)

    def _touches(self, write: Write, relation: Relation) -> bool:
        """Whether this write of some fields changes one that the relation depends on."""
        names = {origin.name for origin in relation.origins.values() if origin is not None and origin.kind == "field"}
        if relation.score is not None and relation.score.kind == "field":
            names.add(relation.score.name)
        stored = {self._family.stored_name(name).encode() for name in names}
        return write.name == "SET" or not stored.isdisjoint(write.call.args[1::2])

    def _check_deletion(self, write: Write) -> Iterator[WriteProblem]:
        """Its index entries and the keys it owns must be removed in the same batch, unless it is written again."""
        cure = _Creates(write.key.encode())
        for relation in self._family.owns:
            owned = self._owned_key(write, relation)
            if owned is None:
                sentence = f"the keys of {relation.target.place} that it owns would be left"
                yield WriteProblem("orphan", sentence, cure=cure)
            else:
                sentence = f"it owns a key of {relation.target.place}; delete both in one transaction"
                yield WriteProblem("orphan", sentence, _is_absent(owned), [("DEL", owned)], cure=cure)
        for listed in self._facts.listed:
            entry = entry_of(KeyState(*write.member), listed)
            sentence = f"its entry in {listed.index.family.place} would be left; remove it in the same transaction"
            if entry is None:
                yield WriteProblem("dead-entry", sentence, cure=cure)
            else:
                removal = listing.removal_command(entry)
                yield WriteProblem("dead-entry", sentence, fixes=[removal], cure=cure, companion=_Contains(removal))

    def _owned_key(self, write: Write, relation: Relation) -> str | None:
        if not relation.from_key:
            return None
        where = relation.target_values(write.member.values, None)
        try:
            return None if where is None else str(self._facts.bound.related(relation.target)(**where).key)
        except BadKey:
            return None

    # --- indexes ---------------------------------------------------------------------------------------------

    def _check_index(self, write: Write) -> Iterator[WriteProblem]:
        if write.name in _ADDING:
            members = write.call.args[1:] if write.name == "SADD" else [one for one, _ in write.call.options.pairs]
            for member in members:
                yield from self._check_entry(write, member)
        elif write.name in ("SREM", "ZREM"):
            for member in write.call.args[1:]:
                for key in self._names(write, member) or ():
                    yield WriteProblem("not-listed", "the record of this entry exists", _is_absent(key))
        elif write.name in _TAKING or write.deletes:
            yield WriteProblem("not-listed", "it is an index: remove entries together with their records")
        elif write.name in _EXPIRING and not self._is_renewal(write):
            yield WriteProblem("not-listed", "it is an index: give it its whole lifetime, or extend it with NX or GT")

    def _is_renewal(self, write: Write) -> bool:
        """Whether this new deadline never shortens the life of an index, whose records may live as long."""
        options, longest_ms = write.call.options, self._family.lifetime.longest_ms
        if options.conditions and options.conditions <= {b"NX", b"GT"}:
            return True
        left_ms = options.deadline.at_ms(write.now_ms) - write.now_ms
        return longest_ms is not None and left_ms >= longest_ms - CLOCKS_MS

    def _check_entry(self, write: Write, member: bytes) -> Iterator[WriteProblem]:
        names = self._names(write, member)
        if names == []:
            yield WriteProblem("dead-entry", "no record can have the name of this entry")
        elif names:
            yield WriteProblem("dead-entry", "the record of this entry does not exist", exists(*names, is_after=True))
        if any(relation.score is not None for relation in self._family.lists):
            records = [name.encode() for name in names or ()]
            yield WriteProblem(
                "wrong-score",
                "its score follows from the record; write both in one transaction",
                companion=lambda call: call.spec.name in _CREATING and call.args[0] in records,
            )

    def _names(self, write: Write, data: bytes) -> list[str] | None:
        """The keys that this entry may name; None if that cannot be determined."""
        look = KeyState(*write.member)
        entry = data if self._facts.kind == "set" else [data, 0.0]
        member, problem = read_entry(self._facts.bound, write.key, entry)
        named = None if problem is not None else self._facts.keys_named_by(look, data, member)
        return None if named is None else list(named.names)


class _Creates:
    """Whether a command writes this key, so that it exists afterwards."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, call: Call) -> bool:
        if call.spec.name not in _CREATING or call.args[0] != self._key:
            return False
        return call.spec.name != "SET" or call.options.only_if != b"XX"


def _is_absent(key: str) -> Condition:
    """After the batch there is no such key."""
    return Condition([absent(key)], ("EXISTS", key), bool, is_after=True)


class _Contains:
    """Whether a command of the batch is this one, or does the same to more members."""

    def __init__(self, command: Command) -> None:
        self._name, self._key, self._member = command

    def __call__(self, call: Call) -> bool:
        key = self._key.encode() if isinstance(self._key, str) else self._key
        return call.spec.name == self._name and call.args[0] == key and self._member in call.args[1:]


def _not_listed(write: Write, entry: listing.ListedEntry, score: float | None) -> WriteProblem:
    """The record must be listed after the batch, with its score if the record determines it."""
    look = existence_command(entry)
    guards: list[Step] = [required(look)]
    if score is not None:
        guards += [at_most(look, score), more_than(look, nextafter(score, -inf))]

    def is_wrong(reply: Reply) -> bool:
        return not reply if isinstance(reply, int) else reply is None or score not in (None, reply)

    index = entry.index.family.place
    sentence = f"{index} does not list it" + ("" if score is None else f" with the score {score:.17g}")
    condition = Condition(guards, look, is_wrong, is_after=True)
    return WriteProblem(
        "not-listed", f"{sentence}; add it in the same transaction", condition, _entry_writes(write, entry)
    )


def _entry_writes(write: Write, entry: listing.ListedEntry) -> list[Command]:
    """The commands that list the record; none if they cannot be determined."""
    bound = write.member.bound
    if write.value is UNKNOWN:
        return []
    try:
        at_ms = moment(bound.family, write.key, write.value, {})
        dies_ms = bound.family.lifetime.deadline_ms(write.now_ms, at_ms)
        *commands, _ = listing.put(entry, write.member.values, write.value, write.now_ms, dies_ms)
    except (BadValue, BadKey):
        return []
    return commands
