"""Commands on keys of any kind, on messages, and on the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystead.stores.commands import INT64_MAX, Call, Reply
from keystead.stores.globs import compile_glob
from keystead.stores.sql.key_tables import KIND_NAMES, KeyTables, StringKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from keystead.stores.command_options import ExpireOptions, ScanOptions


def del_(tables: StringKeys, call: Call) -> Reply:
    return sum(tables.delete(key) for key in call.args)


def exists(tables: StringKeys, call: Call) -> Reply:
    return sum(tables.live(key) is not None for key in call.args)


def expire(tables: StringKeys, call: Call) -> Reply:
    key = call.args[0]
    row = tables.live(key)
    if row is None:
        return 0
    options: ExpireOptions = call.options
    deadline, held = options.deadline.at_ms(tables.now_ms), row.expires_at
    for condition in options.conditions:
        if (
            (condition == b"NX" and held is not None)
            or (condition == b"XX" and held is None)
            or (condition == b"GT" and (held is None or deadline <= held))
            or (condition == b"LT" and held is not None and deadline >= held)
        ):
            return 0
    if deadline <= tables.now_ms:
        tables.delete(key)
    else:
        tables.set_deadline(key, row, deadline)
    return 1


def persist(tables: StringKeys, call: Call) -> Reply:
    key = call.args[0]
    row = tables.live(key)
    if row is None or row.expires_at is None:
        return 0
    tables.set_deadline(key, row, None)
    return 1


def pttl(tables: StringKeys, call: Call) -> Reply:
    row = tables.live(call.args[0])
    if row is None:
        return -2
    return -1 if row.expires_at is None else row.expires_at - tables.now_ms


def pexpiretime(tables: StringKeys, call: Call) -> Reply:
    row = tables.live(call.args[0])
    if row is None:
        return -2
    return -1 if row.expires_at is None else row.expires_at


def type_(tables: StringKeys, call: Call) -> Reply:
    row = tables.live(call.args[0])
    return b"none" if row is None else KIND_NAMES[row.kind].encode()


def scan(tables: KeyTables, call: Call) -> Reply:
    options: ScanOptions = call.options
    rows = tables.page(min(options.cursor, INT64_MAX), options.page)
    glob = None if options.match is None else compile_glob(options.match)
    found = [
        key
        for _, key, kind, expires_at in rows
        if (expires_at is None or expires_at > tables.now_ms)
        and (options.kind is None or KIND_NAMES[kind] == options.kind)
        and (glob is None or glob.fullmatch(key))
    ]
    cursor = rows[-1][0] if len(rows) == options.page else 0
    return [b"%d" % cursor, found]


def dbsize(tables: KeyTables, call: Call) -> Reply:
    return tables.count()


def time(tables: StringKeys, call: Call) -> Reply:
    return [b"%d" % (tables.now_ms // 1000), b"%d" % (tables.now_ms % 1000 * 1000)]


def publish(tables: KeyTables, call: Call) -> Reply:
    channel, data = call.args
    return tables.publish(channel, data)


# The commands of a store that only has strings.
OF_ANY_KIND: dict[str, Callable[[StringKeys, Call], Reply]] = {
    "DEL": del_,
    "EXISTS": exists,
    "EXPIRE": expire,
    "PEXPIRE": expire,
    "PEXPIREAT": expire,
    "PERSIST": persist,
    "PTTL": pttl,
    "PEXPIRETIME": pexpiretime,
    "TYPE": type_,
    "TIME": time,
}
HANDLERS: dict[str, Callable[[KeyTables, Call], Reply]] = {
    **OF_ANY_KIND,
    "SCAN": scan,
    "DBSIZE": dbsize,
    "PUBLISH": publish,
}
