"""Buffered atomic steps on strings leave the same tables as unbuffered ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.errors import CommandError
from keystead.stores.sqlite.database_file import prepare
from keystead.stores.sqlite.sqlite_interpreter import SqliteInterpreter
from keystead.stores.sqlite.sqlite_tables import SqliteTables
from keystead.stores.store_contract import Step, absent, at_most, holds, more_than, plan, required

NOW_MS = 1_000_000
LONG = b"7" * 5_000  # longer than what is read along with a row

keys = st.sampled_from([b"a", b"b", b"c"])
values = st.sampled_from([b"", b"1", b"7", b"word", LONG])
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
    st.builds(lambda key, amount: ("INCRBY", key, amount), keys, st.integers(-3, 3)),
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


def run(has_buffer: bool, first: Sequence[Any], rounds: Sequence[Sequence[Step]]) -> list[Any]:
    """What the steps said, and what the tables hold afterwards."""
    connection = prepare(":memory:", 0)
    tables = SqliteTables(connection, lambda: NOW_MS)
    interpreter = SqliteInterpreter(tables, lambda: NOW_MS)
    for one in plan(first):
        interpreter.replies([one.call])
    said: list[Any] = []
    for some in rounds:
        connection.execute("BEGIN")
        try:
            planned = plan(some)
            outcome = interpreter.atomically(planned) if has_buffer else interpreter._step(tables, planned)
            said.append((outcome.stopped_at, outcome.replies))
        except CommandError as error:
            said.append((type(error), error.command, error.key, error.sentence))
        connection.execute("COMMIT")
    rows = connection.execute("SELECT key, kind, expires_at, size, value FROM keys ORDER BY key").fetchall()
    live = [row for row in rows if row[2] is None or row[2] > NOW_MS]
    fields = connection.execute(
        "SELECT keys.key, field FROM fields JOIN keys ON keys.id = fields.owner ORDER BY 1, 2"
    ).fetchall()
    orphans = connection.execute("SELECT count(*) FROM fields WHERE owner NOT IN (SELECT id FROM keys)").fetchone()
    connection.close()
    return [said, live, fields, orphans]


@settings(max_examples=400)
@given(before, st.lists(st.lists(steps, min_size=1, max_size=6), min_size=1, max_size=3))
def test_buffered_steps_do_what_unbuffered_ones_do(first: list[Any], rounds: list[list[Any]]) -> None:
    assert run(True, first, rounds) == run(False, first, rounds)
