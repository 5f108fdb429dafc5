"""Stores: commands in, replies out."""

from keystead.stores.base import (
    FieldHolds,
    Guarantees,
    Holds,
    Message,
    Outcome,
    Required,
    Step,
    Store,
    field_holds,
    holds,
    required,
)
from keystead.stores.commands import Command, Reply
from keystead.stores.urls import connect

__all__ = [
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
    "connect",
    "field_holds",
    "holds",
    "required",
]
