"""Prepared steps: a procedure that is planned once and run many times with different keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, Final, Generic, NoReturn, TypeVar

from keystead.errors import BadDeclaration, Unreadable
from keystead.schema.family import Bound
from keystead.schema.lifetime import After, Never, Sliding, Until
from keystead.schema.operation_batch import Done, stopped_batch
from keystead.schema.procedure import Steps
from keystead.schema.unreadable import log_unreadable
from keystead.stores import AtMost, Call, Reply, Required, Step
from keystead.stores.store_contract import PROCEDURE

R = TypeVar("R")

_WORDS: Final = (str, bytes, int)  # types of words that an argument may replace


class Prepared(Generic[R]):
    """A procedure that is planned once. Only keys, texts and some values differ from call to call.

        count = Prepared([keys.hits], lambda hits: Steps(hits.at_most(9), added := hits.increment()).giving(added))
        done = await count(b"hits:7")

    make    called once, with a key of each family, with `texts` texts that become members, and with the `values`
    values  pairs: a sample value to make the steps with, and its stored form. An integer stands for a positive number,
            such as a deadline in ms, which the caller checks. Nothing else in the steps may equal a sample

    A call takes the names of the keys, the texts and the stored values, all as bytes. Everything else, such as limits,
    is fixed. For hot paths that run with every request. Otherwise use a procedure.
    """

    def __init__(
        self,
        families: Sequence[Bound[Any]],
        make: Callable[..., Steps[R]],
        *,
        texts: int = 0,
        values: Sequence[tuple[Any, bytes | int]] = (),
        name: str = "",
    ) -> None:
        self._families = families
        self._make = make
        self._texts = texts
        self._values = [value for value, _ in values]
        self._name = name
        names = [f"\x00place {number}\x00" for number in range(len(families) + texts)]
        stored = [form for _, form in values]
        takes_number = [isinstance(form, int) for form in stored]
        _refuse_varying_lifetimes(families, takes_deadline=any(takes_number))
        steps = self._steps_for(names)
        self._operations = steps.operations
        if any(one.follow is not None for one in steps.operations):
            raise BadDeclaration("a prepared step cannot have operations with upkeep, such as writes of listed records")
        self._parts = [one.in_batch() for one in steps.operations]
        numbers = [place for place, is_number in enumerate(takes_number, len(names)) if is_number]
        template = _template([step for part in self._parts for step in part], [*names, *stored], numbers)
        self._run = families[0].store.prepared(template, len(names) + len(stored), numbers)
        given = steps.given
        self._gives_each = isinstance(given, tuple)
        wanted = given if isinstance(given, tuple) else () if given is None else (given,)
        self._given = [(*self._bounds(self._operations.index(one)), one.finish) for one in wanted]

    async def __call__(self, *given: bytes) -> Done[R]:
        """Run the steps as one atomic step, in one round trip. Raises Unreadable as the operations do."""
        named = PROCEDURE.set(self._name)
        try:
            outcome = await self._run(*given)
        finally:
            PROCEDURE.reset(named)
        replies = outcome.replies
        try:
            if outcome.stopped_at is None:
                values: list[Any] = []
                for begin, end, finish in self._given:  # not a comprehension, which costs a call on Python 3.11
                    values.append(finish(replies[begin:end]))
                value: Any = tuple(values) if self._gives_each else values[0] if values else None
                return Done(value)
            return stopped_batch(self._operations, self._parts, outcome)
        except Unreadable as error:
            self._raise_for(given, replies, error)

    def _raise_for(self, given: Sequence[bytes], replies: list[Reply], error: Unreadable) -> NoReturn:
        """Raise the error with the real key: the operations were made with other names."""
        names = [name.decode() for name in given[: len(self._families) + self._texts]]
        operations = self._steps_for(names).operations
        for one in operations:
            one.close()
        try:
            for place, one in enumerate(operations):
                begin, end = self._bounds(place)
                if end <= len(replies):
                    one.finish(replies[begin:end])
        except Unreadable as real:
            error = real
        log_unreadable(self._families[0].store, error)
        raise error

    def _bounds(self, place: int) -> tuple[int, int]:
        """Where the replies of this operation begin and end."""
        begin = sum(map(len, self._parts[:place]))
        return begin, begin + len(self._parts[place])

    def _steps_for(self, names: Sequence[str]) -> Steps[R]:
        keys = [bound.family.verbs(bound, name) for bound, name in zip(self._families, names, strict=False)]
        return self._make(*keys, *names[len(keys) :], *self._values)


def _refuse_varying_lifetimes(families: Sequence[Bound[Any]], *, takes_deadline: bool) -> None:
    fixed = (After, Sliding, Never, Until) if takes_deadline else (After, Sliding, Never)
    for family in (bound.family for bound in families):
        if not isinstance(family.lifetime, fixed):
            raise BadDeclaration(f"{family.place}: its lifetime varies, so it cannot be prepared")


def _places(marks: Sequence[str | bytes | int]) -> dict[str | bytes | int, int]:
    """Which argument each word of a step stands for. A name may occur as text or as bytes."""
    places: dict[str | bytes | int, int] = {mark: place for place, mark in enumerate(marks)}
    places |= {mark.encode(): place for place, mark in enumerate(marks) if isinstance(mark, str)}
    return places


def _template(
    steps: Sequence[Step], marks: Sequence[str | bytes | int], numbers: Sequence[int]
) -> Callable[..., list[Step]]:
    """A function that creates these steps, with its arguments in place of these marks."""
    places = _places(marks)
    templates = []
    for step in steps:
        wrap, words = _split_step(step)
        own = [
            (at, places[word])
            for at, word in enumerate(words)
            if isinstance(word, str | bytes | int) and word in places
        ]
        templates.append((wrap, words, own))
    missing = set(places.values()).difference(number for _, _, own in templates for _, number in own)
    if missing:
        raise BadDeclaration(f"arguments {sorted(missing)} of a prepared step are not in its steps as they are")

    def fill(*given: Any) -> list[Step]:
        arguments = [int(one) if number in numbers else one for number, one in enumerate(given)] if numbers else given
        return [_fill_step(wrap, words, own, arguments) for wrap, words, own in templates]

    return fill


def _fill_step(
    wrap: Callable[[list[Any]], Step] | None, words: Sequence[Any], own: list[tuple[int, int]], arguments: Sequence[Any]
) -> Step:
    filled = list(words)
    for at, number in own:
        filled[at] = arguments[number]
    return filled if wrap is None else wrap(filled)


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
