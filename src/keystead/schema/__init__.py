"""Schema: families, patterns, lifetimes and relations; the key document, executable."""

from keystead.schema.codec import Codec, OmittedIfNone, Versions
from keystead.schema.contention import attempts
from keystead.schema.deletion import Plan, PlannedStep
from keystead.schema.family import Bound, Family
from keystead.schema.keyspace import Keyspace
from keystead.schema.kinds import (
    Channel,
    Counter,
    Hash,
    List,
    Log,
    LogEntry,
    Set,
    SortedSet,
    Value,
)
from keystead.schema.lifetime import Lifetime, after, end_of_day, never, sliding, until
from keystead.schema.operation import Operation
from keystead.schema.operation_batch import Done
from keystead.schema.packed import packed
from keystead.schema.pattern import Pattern
from keystead.schema.placeholder_types import placeholder
from keystead.schema.procedure import Procedure, procedure
from keystead.schema.relation import VALUE, link
from keystead.schema.seal import KeyRing, Sealed
from keystead.schema.steps import Steps
from keystead.schema.times import BigInt, EpochMs, EpochSeconds, IsoSeconds, IsoTime

__all__ = [
    "VALUE",
    "BigInt",
    "Bound",
    "Channel",
    "Codec",
    "Counter",
    "Done",
    "EpochMs",
    "EpochSeconds",
    "Family",
    "Hash",
    "IsoSeconds",
    "IsoTime",
    "KeyRing",
    "Keyspace",
    "Lifetime",
    "List",
    "Log",
    "LogEntry",
    "OmittedIfNone",
    "Operation",
    "Pattern",
    "Plan",
    "PlannedStep",
    "Procedure",
    "Sealed",
    "Set",
    "SortedSet",
    "Steps",
    "Value",
    "Versions",
    "after",
    "attempts",
    "end_of_day",
    "link",
    "never",
    "packed",
    "placeholder",
    "procedure",
    "sliding",
    "until",
]
