"""Buffered and compiled atomic steps on strings do what unbuffered ones do, and leave the same tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.errors import CommandError
from keystead.stores.atomic_steps import PlanTemplate
from keystead.stores.commands import read
from keystead.stores.sqlite.compiled_strings import CompiledStrings
from keystead.stores.sqlite.database_file import prepare
from keystead.stores.sqlite.sqlite_interpreter import SqliteInterpreter
from keystead.stores.sqlite.sqlite_tables import SqliteTables
from keystead.stores.store_contract import Step, absent, at_most, holds, more_than, plan, required

NOW_MS = 1_000_000
LONG = b"7" * 5_000  # longer than what is read along with a row

KEYS = [b"a", b"b", b"c"]
VALUES = [b"", b"1", b"7", b"word", b"%d" % (2**63 - 2), LONG]
ARGUMENTS = [*KEYS, *VALUES]
keys = st.sampled_from(KEYS)
values = st.sampled_from(VALUES)
lifetimes = st.sampled_from([(), ("PX", 50), ("PXAT", NOW_MS - 1), ("PXAT", NOW_MS + 9), ("KEEPTTL",)])
commands = st.one_of(
    st.builds(
        lambda key, value, lifetime, only_if, get: ("SET", key, value, *lifetime, *only_if, *get),
        keys,
        values,
        lifetimes,
        st.sampled_from([(), ("NX",), ("XX",)]),
        st.sampled_from([(), ("GET",)]),
    ),
    st.builds(lambda name, key: (name, key), st.sampled_from(["GET", "GETDEL", "DEL", "EXISTS", "PERSIST"]), keys),
    st.builds(lambda name, key: (name, key), st.sampled_from(["PTTL", "PEXPIRETIME", "TYPE", "MGET"]), keys),
    st.builds(lambda name, key, by: (name, key, by), st.sampled_from(["INCRBY", "DECRBY"]), keys, st.integers(-3, 3)),
    st.builds(lambda key, ms: ("PEXPIRE", key, ms), keys, st.sampled_from([5, 60])),
    st.builds(
        lambda key, ms, condition: ("PEXPIREAT", key, ms, *condition),
        keys,
        st.sampled_from([NOW_MS - 5, NOW_MS + 5, NOW_MS + 500]),
        st.sampled_from([(), ("NX",), ("XX",), ("GT",), ("LT",)]),
    ),
    st.builds(lambda key, option: ("GETEX", key, *option), keys, st.sampled_from([(), ("PX", 30), ("PERSIST",)])),
)
steps = st.one_of(
    commands,
    st.builds(required, commands),
    st.builds(holds, keys, st.one_of(st.none(), values)),
    st.builds(absent, keys),
    st.builds(lambda key: at_most(("GET", key), 3), keys),
    st.builds(lambda key: more_than(("GET", key), 0), keys),
)
before = st.lists(
    st.one_of(
        commands,
        st.builds(lambda key: ("SADD", key, "member"), keys),
        st.builds(lambda key: ("SET", key, "gone", "PXAT", NOW_MS - 100), keys),
    ),
    max_size=4,
)


def compiled(some: Sequence[Step]) -> CompiledStrings:
    """The same steps, with all keys and values as arguments."""

    def make(*given: bytes) -> list[Step]:
        places: dict[Any, bytes] = dict(zip(ARGUMENTS, given, strict=True))

        def fill(step: Any) -> Any:
            if isinstance(step, tuple):
                return tuple(places.get(word, word) for word in step)
            parts = (getattr(step, field.name) for field in fields(step))
            return type(step)(*(fill(part) if isinstance(part, tuple) else places.get(part, part) for part in parts))

        return [fill(step) for step in some]

    template = PlanTemplate(make, len(ARGUMENTS))
    return CompiledStrings(template)


def run(how: str, first: Sequence[Any], rounds: Sequence[Any], *, is_one_transaction: bool) -> list[Any]:
    """What the steps said, and what the tables hold afterwards. A round is a command, or the list of an atomic step."""
    connection = prepare(":memory:", 0)
    now_ms = NOW_MS
    tables = SqliteTables(connection, lambda: now_ms)
    interpreter = SqliteInterpreter(tables, lambda: now_ms)
    for one in plan(first):
        interpreter.replies([one.call])
    said: list[Any] = []
    connection.execute("BEGIN")
    for some in rounds:
        now_ms += 7
        try:
            if isinstance(some, tuple):
                said.append([_plain(reply) for reply in interpreter.replies([read(some)])])
                continue
            if how == "compiled":
                outcome = interpreter.run_compiled(compiled(some), ARGUMENTS)
            else:
                planned = plan(some)
                outcome = interpreter.atomically(planned) if how == "buffered" else interpreter._step(tables, planned)
            said.append((outcome.stopped_at, outcome.replies))
        except CommandError as error:
            said.append(_plain(error))
        if not is_one_transaction:
            interpreter.flush()
            connection.execute("COMMIT")
            connection.execute("BEGIN")
    interpreter.flush()
    connection.execute("COMMIT")
    rows = connection.execute("SELECT key, kind, expires_at, size, value FROM keys ORDER BY key").fetchall()
    live = [row for row in rows if row[2] is None or row[2] > now_ms]
    members = connection.execute(
        "SELECT keys.key, field FROM fields JOIN keys ON keys.id = fields.owner ORDER BY 1, 2"
    ).fetchall()
    orphans = connection.execute("SELECT count(*) FROM fields WHERE owner NOT IN (SELECT id FROM keys)").fetchone()
    connection.close()
    return [said, live, members, orphans]


def _plain(reply: Any) -> Any:
    return (type(reply), reply.command, reply.key, reply.sentence) if isinstance(reply, CommandError) else reply


@pytest.mark.matrix
@settings(max_examples=400)
@given(before, st.lists(st.one_of(st.lists(steps, min_size=1, max_size=6), commands), min_size=1, max_size=5))
def test_buffered_and_compiled_steps_do_what_unbuffered_ones_do(first: list[Any], rounds: list[Any]) -> None:
    expected = run("unbuffered", first, rounds, is_one_transaction=True)
    for is_one_transaction in (True, False):
        assert run("buffered", first, rounds, is_one_transaction=is_one_transaction) == expected
        assert run("compiled", first, rounds, is_one_transaction=is_one_transaction) == expected
