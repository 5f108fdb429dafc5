"""Prepared steps: a procedure that is called again and again with other keys, and planned once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import astuple
from typing import Any, TypeVar

from keystead.errors import Unreadable
from keystead.schema.family import Bound
from keystead.schema.operation import Done, finished, stopped_in
from keystead.schema.procedure import Steps
from keystead.stores import AtMost, Call, Required, Step

R = TypeVar("R")


def prepared(
    families: Sequence[Bound[Any]], make: Callable[..., Steps[R]], *, texts: int = 0
) -> Callable[..., Coroutine[Any, Any, Done[R]]]:
    """A function that runs the steps that `make` makes of a key of each family, and of so many texts, as one.

        count = prepared([keys.hits], lambda hits: Steps(hits.at_most(9), hits.increment()))
        done = await count(b"hits:7")

    It takes the names of the keys, and the texts, as bytes. `make` is called once: what it makes is the same each time
    but for the keys, and for the texts, which stand as members. All keys are of one store, and in one slot.
    """
    names = [f"\x00place {number}\x00" for number in range(len(families) + texts)]

    def steps_for(given: Sequence[str]) -> Steps[R]:
        keys = [bound.family.verbs(bound, name) for bound, name in zip(families, given, strict=False)]
        return make(*keys, *given[len(families) :])

    steps = steps_for(names)
    operations = steps.operations
    parts = [one.in_batch() for one in operations]
    wanted: list[tuple[Any, int, int]] = []
    at = 0
    for one, part in zip(operations, parts, strict=True):
        if steps.wants(one):
            wanted.append((one, at, at + len(part)))
        at += len(part)
    ask = families[0].store.prepared_steps(_filling([step for part in parts for step in part], names), len(names))

    async def call(*given: bytes) -> Done[R]:
        outcome = await ask(*given)
        try:
            if outcome.stopped_at is not None:
                return stopped_in(operations, parts, outcome)
            return Done(steps.value_of({one: one.finish(outcome.replies[begin:end]) for one, begin, end in wanted}))
        except Unreadable:  # of which the operation of this key knows the name
            own = steps_for([one.decode() for one in given]).operations
            await finished(own, [one.in_batch() for one in own], outcome)
            raise

    return call


def _filling(steps: Sequence[Step], names: Sequence[str]) -> Callable[..., list[Step]]:
    """A function that makes these steps with other arguments in the places of these names."""
    places = {word: number for number, name in enumerate(names) for word in (name, name.encode())}
    templates = []
    for step in steps:
        wrap, words = _taken_apart(step)
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


def _taken_apart(step: Any) -> tuple[Callable[[list[Any]], Step] | None, Sequence[Any]]:
    """The words of a step, and what makes a step of them again; None: they are a command."""
    if isinstance(step, AtMost):
        kind, limit = type(step), step.limit
        return lambda words: kind(words, limit), step.command
    if isinstance(step, Required):
        return Required, _taken_apart(step.command)[1]
    if isinstance(step, Call):
        return None, (step.spec.name, *step.args)
    if isinstance(step, tuple | list):
        return None, step
    guard: Any = type(step)
    return lambda words: guard(*words), astuple(step)
