"""Prepared steps: an atomic step that is planned once and run many times on different keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from keystead.errors import BadDeclaration, Unreadable
from keystead.schema.family import Bound
from keystead.schema.lifetime import After, Never, Sliding
from keystead.schema.operation import Operation, use_all
from keystead.stores import AtMost, Call, Outcome, Required, Step


class Prepared:
    """Operations on a key of each of these families; only the keys differ between runs.

        count = Prepared([keys.hits], lambda hits: ([hits.get()], [hits.at_most(9), hits.increment()]))
        outcome = await count.ask(b"hits:7")
        [before] = count.found(outcome, [b"hits:7"])

    make    called with a key of each family, and with this many `texts`, which become members. It returns the reads and
            the operations; a guard among the latter stops all of them
    ask     runs them as one atomic step, in one round trip, given the names of the keys and the texts as bytes. Its
            result is truthy if everything took effect

    For hot paths that run with every request. Otherwise use a procedure.
    """

    def __init__(
        self,
        families: Sequence[Bound[Any]],
        make: Callable[..., tuple[Sequence[Operation[Any]], Sequence[Operation[Any]]]],
        *,
        texts: int = 0,
    ) -> None:
        self._families = families
        self._make = make
        names = [f"\x00place {number}\x00" for number in range(len(families) + texts)]
        reads, rest = self._operations_for(names)
        use_all([*reads, *rest])
        if any(len(one.steps) != 1 for one in reads):
            raise BadDeclaration("each read of a prepared step must be one command")
        if any(one.follow is not None for one in rest):
            raise BadDeclaration("a prepared step cannot have operations with upkeep, such as writes of listed records")
        for family in (bound.family for bound in families):
            if not isinstance(family.lifetime, After | Sliding | Never):
                raise BadDeclaration(f"{family.place}: its lifetime varies, so it cannot be prepared")
        self._finish = [(place, one.finish) for place, one in enumerate(reads)]
        steps = [step for one in (*reads, *rest) for step in one.in_batch()]
        self.ask = families[0].store.prepared(_template(steps, names), len(names))

    def found(self, outcome: Outcome, names: Sequence[bytes]) -> list[Any]:
        """The results of the reads, whether the step took effect or not. Raises Unreadable."""
        replies, found = outcome.replies, []
        try:
            for place, finish in self._finish:  # not a comprehension, which costs a call on Python 3.11
                found.append(finish([replies[place]]))
            return found
        except Unreadable:  # raise it again with the real keys
            reads, rest = self._operations_for([name.decode() for name in names])
            use_all([*reads, *rest])
            return [one.finish([reply]) for one, reply in zip(reads, outcome.replies, strict=False)]

    def _operations_for(self, names: Sequence[str]) -> tuple[Sequence[Operation[Any]], Sequence[Operation[Any]]]:
        keys = [bound.family.verbs(bound, name) for bound, name in zip(self._families, names, strict=False)]
        return self._make(*keys, *names[len(keys) :])


def _template(steps: Sequence[Step], names: Sequence[str]) -> Callable[..., list[Step]]:
    """A function that creates these steps with other arguments in place of these names."""
    places = {word: number for number, name in enumerate(names) for word in (name, name.encode())}
    templates = []
    for step in steps:
        wrap, words = _split_step(step)
        own = [(at, places[word]) for at, word in enumerate(words) if isinstance(word, str | bytes) and word in places]
        templates.append((wrap, words, own))

    def fill(*given: bytes) -> list[Step]:
        made: list[Step] = []
        for wrap, words, own in templates:
            filled = list(words)
            for at, number in own:
                filled[at] = given[number]
            made.append(filled if wrap is None else wrap(filled))
        return made

    return fill


def _split_step(step: Any) -> tuple[Callable[[list[Any]], Step] | None, Sequence[Any]]:
    """The words of a step, and a function that rebuilds it; None: the step is a command."""
    if isinstance(step, AtMost):
        kind, limit = type(step), step.limit
        return lambda words: kind(words, limit), step.command
    if isinstance(step, Required):
        return Required, _split_step(step.command)[1]
    if isinstance(step, Call):
        return None, (step.spec.name, *step.args)
    if isinstance(step, tuple | list):
        return None, step
    guard: Any = type(step)
    return lambda words: guard(*words), astuple(step)
