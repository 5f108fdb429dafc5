"""The procedures of a keyspace, for its key document."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from keystead.schema.keyspace import Keyspace
from keystead.schema.procedure import Procedure
from keystead.schema.procedure_plan import why_not_compiled
from keystead.schema.procedure_tracing import Traced, traced


@dataclass(frozen=True)
class ProcedureEntry:
    """One procedure. `doc`, `guards`, `in_cluster` and `repair` are prose.

    changes      the keys that it writes
    reads        those that it only reads
    guards       what stops it, so that nothing takes effect
    stops        the reasons for the caller
    is_atomic    whether it is one step in a cluster, too
    in_cluster   how it runs in a cluster
    repair       what repairs an interruption, if it is ordered
    problem      why its steps cannot be determined
    not_compiled why its steps are planned at each call; empty: they are compiled
    """

    name: str
    arguments: tuple[str, ...]
    doc: str
    changes: tuple[str, ...]
    reads: tuple[str, ...]
    guards: tuple[str, ...]
    stops: tuple[str, ...]
    is_atomic: bool
    in_cluster: str
    repair: str
    problem: str
    not_compiled: str

    @property
    def call(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


def procedure_entries(keyspace: type[Keyspace]) -> tuple[ProcedureEntry, ...]:
    """The procedures in the order of declaration."""
    return tuple(_entry(keyspace, one) for one in keyspace.procedures.values())


def _entry(keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any]) -> ProcedureEntry:
    known = traced(keyspace, procedure)
    families = known.families
    guards = [step for step in known.steps if step.guard is not None]
    return ProcedureEntry(
        name=procedure.name,
        arguments=tuple(_arguments(procedure)),
        doc=" ".join(inspect.cleandoc(procedure.__doc__ or "").split("\n\n")[0].split()),
        changes=tuple(family.pattern.display for family, writes in families.items() if writes),
        reads=tuple(family.pattern.display for family, writes in families.items() if not writes),
        guards=tuple(
            dict.fromkeys(
                f"`{step.family.name}.{step.verb}`" + (f": {step.guard}" if step.guard != step.family.name else "")
                for step in guards
            )
        ),
        stops=tuple(dict.fromkeys(str(step.guard) for step in guards)),
        is_atomic=known.one_slot and not known.problem,
        in_cluster=_in_cluster(known, procedure.ordered),
        repair=" ".join((procedure.ordered or "").split()),
        problem=known.problem,
        not_compiled=why_not_compiled(keyspace, procedure),
    )


def _arguments(procedure: Procedure[Any, Any, Any]) -> list[str]:
    return [one.name for one in list(inspect.signature(procedure.function).parameters.values())[1:]]


def _in_cluster(known: Traced, ordered: str | None) -> str:
    if known.problem:
        return "one step if its keys are in one slot" + ("; otherwise in order" if ordered else "")
    if known.one_slot:
        return "one step"
    if ordered:
        return f"in order, {known.groups} round trips"
    return "refused, unless its keys happen to be in one slot"
