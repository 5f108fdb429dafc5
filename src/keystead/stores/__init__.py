"""Stores: commands in, replies out."""

from keystead.stores.base import (
    Absent,
    FieldHolds,
    Guarantees,
    Holds,
    Message,
    Outcome,
    Required,
    Step,
    Store,
    absent,
    field_holds,
    holds,
    required,
)
from keystead.stores.commands import TABLE, Call, Command, Reply
from keystead.stores.urls import connect

__all__ = [
    "TABLE",
    "Absent",
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
    "absent",
    "connect",
    "field_holds",
    "holds",
    "required",
]
