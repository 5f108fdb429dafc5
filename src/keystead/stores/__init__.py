"""Stores: commands in, replies out."""

from keystead.stores.base import (
    Absent,
    AtMost,
    FieldHolds,
    Guarantees,
    Holds,
    Message,
    Outcome,
    Required,
    Step,
    Store,
    absent,
    at_most,
    field_holds,
    holds,
    required,
    store_ms,
)
from keystead.stores.commands import TABLE, Call, Command, Reply, StoreMs, TimedCommand
from keystead.stores.urls import connect

__all__ = [
    "TABLE",
    "Absent",
    "AtMost",
    "Call",
    "Command",
    "FieldHolds",
    "Guarantees",
    "Holds",
    "Message",
    "Outcome",
    "Reply",
    "Required",
    "Step",
    "Store",
    "StoreMs",
    "TimedCommand",
    "absent",
    "at_most",
    "connect",
    "field_holds",
    "holds",
    "required",
    "store_ms",
]
